//! Links come up, go down, are displaced, and survive changes of address and certificate.

use std::net::UdpSocket;

use super::*;

#[tokio::test]
async fn both_sides_hear_that_a_link_is_up_and_that_it_is_closed() {
    let authority = Authority::new();
    let (mut a, mut b) = (cell(&authority, 1), cell(&authority, 2));
    a.link_to(&mut b).await;
    let link = b.transport.link(a.id).unwrap();
    assert_eq!((link.address, link.dialled, link.version), (a.address(), false, 1));
    assert_eq!(a.transport.links().len(), 1);

    a.transport.close(b.id, "enough\nof this");
    let (gone, reason) = a.link_down().await;
    assert_eq!(gone, b.id);
    assert!(reason.contains("closed by us"), "{reason}");
    let (gone, reason) = b.link_down().await;
    assert_eq!(gone, a.id);
    assert!(reason.contains("enough of this"), "a peer's words are kept in one line: {reason}");
    assert!(a.transport.links().is_empty() && b.transport.links().is_empty());
}

#[tokio::test]
async fn shutdown_tells_the_peers_and_ends_everything() {
    let authority = Authority::new();
    let (mut a, mut b) = (cell(&authority, 1), cell(&authority, 2));
    a.link_to(&mut b).await;
    a.transport.shutdown().await;
    assert_eq!(b.link_down().await.0, a.id);
    assert_eq!(a.link_down().await.0, b.id);
    assert_eq!(a.transport.dial(None, b.address()), Err(DialRefused::Stopped));
    drop(a.transport);
    assert_eq!(patiently("the end", a.events.recv()).await, None, "no task holds on to it");
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_links() {
    let authority = Authority::new();
    let (mut a, mut b) = (cell(&authority, 1), cell(&authority, 2));
    a.link_to(&mut b).await;
    let copy = a.transport.clone();
    drop(a.transport);
    assert_eq!(copy.links().len(), 1);
    drop(copy);
    assert_eq!(b.link_down().await.0, member(1));
}

#[tokio::test]
async fn a_dial_to_an_expected_member_fails_if_another_one_answers() {
    let authority = Authority::new();
    let (mut a, b) = (cell(&authority, 1), cell(&authority, 2));
    a.transport.dial(Some(member(3)), b.address()).unwrap();
    let (address, reason) = a.dial_failed().await;
    assert_eq!(address, b.address());
    assert!(reason.contains(&b.id.to_string()), "{reason}");
    assert_eq!(a.transport.counters().of(Reason::UnexpectedMember), 1);
    // Without an expected member, any member may answer.
    a.transport.dial(None, b.address()).unwrap();
    assert_eq!(a.link_up().await.0, b.id);
}

#[tokio::test]
async fn a_link_to_oneself_is_refused() {
    let authority = Authority::new();
    let mut a = Build::new(&authority, 1).set(|settings| settings.me = Some(member(1))).open();
    a.transport.dial(None, a.address()).unwrap();
    a.dial_failed().await;
    assert!(a.transport.links().is_empty());
    a.counted(Reason::UnexpectedMember, 1).await;
}

#[tokio::test]
async fn when_both_dial_the_link_is_one_and_ends_with_the_last_connection() {
    let authority = Authority::new();
    let (mut a, mut b) = (cell(&authority, 1), cell(&authority, 2));
    a.link_to(&mut b).await;
    b.link_to(&mut a).await;
    assert_eq!((a.transport.links().len(), b.transport.links().len()), (1, 1));
    assert!(b.transport.link(a.id).unwrap().dialled, "the latest one is used");
    a.reaches(&mut b).await;
    b.reaches(&mut a).await;
    // The connection in use ends. The older one replaces it, and the owner receives no event.
    a.transport.inner.link(b.id).unwrap().connection.close(Code::Done.into(), b"");
    let old = || a.transport.link(b.id).is_some_and(|link| link.dialled);
    until("a's older connection", old).await;
    until("b's older one", || b.transport.link(a.id).is_some_and(|link| !link.dialled)).await;
    a.reaches(&mut b).await;
    b.reaches(&mut a).await;
    a.transport.close(b.id, "now");
    assert_eq!(b.link_down().await.0, a.id);
    assert_eq!(a.link_down().await.0, b.id);
}

#[tokio::test]
async fn of_two_connections_the_unused_one_is_closed_in_silence() {
    let authority = Authority::new();
    let quick = |settings: &mut TransportSettings| {
        settings.idle_timeout = Duration::from_secs(1);
        settings.keep_alive = Some(Duration::from_millis(100));
    };
    let side = |n| Build::new(&authority, n).set(quick).open();
    let (mut a, mut b) = (side(1), side(2));
    a.link_to(&mut b).await;
    b.link_to(&mut a).await;
    let open = |side: &Side| side.transport.inner.endpoint.open_connections();
    until("one connection", || open(&a) == 1 && open(&b) == 1).await;
    // No LinkDown came in between.
    a.reaches(&mut b).await;
    b.reaches(&mut a).await;
}

#[tokio::test]
async fn settings_that_cannot_be_are_refused() {
    let authority = Authority::new();
    let refuse = |change: fn(&mut TransportSettings)| {
        let Build { settings, tls, .. } = Build::new(&authority, 1).set(change);
        let service = Arc::new(Router::new());
        let opened = Transport::open(settings, tls, mpsc::channel(1).0, service);
        opened.err().unwrap().to_string()
    };
    assert!(refuse(|settings| settings.idle_timeout = Duration::ZERO).contains("idle_timeout"));
    assert!(refuse(|settings| settings.idle_timeout = Duration::MAX).contains("idle_timeout"));
    assert!(refuse(|settings| settings.versions.clear()).contains("versions"));
    let taken = UdpSocket::bind(loopback()).unwrap();
    let mut build = Build::new(&authority, 1);
    build.settings.listen = taken.local_addr().unwrap();
    let service = Arc::new(Router::new());
    let opened = Transport::open(build.settings, build.tls, mpsc::channel(1).0, service);
    assert!(matches!(opened, Err(TransportError::Socket { .. })));
}

/// A member on a runtime of its own. The test can stop it without closing its links, like a crash.
struct Mortal {
    address: SocketAddr,
    kill: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Mortal {
    /// Opens the member on its own thread and lets it dial.
    fn start(build: Build, dial: SocketAddr) -> Self {
        let (tell, told) = std::sync::mpsc::channel();
        let (kill, killed) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap();
            let side = runtime.block_on(async move {
                let mut side = build.open();
                side.transport.dial(None, dial).unwrap();
                side.link_up().await;
                side
            });
            tell.send(side.address()).unwrap();
            // Also ends after a failed test, because the sender is dropped then.
            let _ = killed.recv();
            // First the tasks that would send the close, then the handle that would close the
            // endpoint.
            runtime.shutdown_timeout(PATIENCE);
            drop(side);
        });
        Self { address: told.recv_timeout(PATIENCE).unwrap(), kill, thread }
    }

    fn kill(self) -> SocketAddr {
        self.kill.send(()).unwrap();
        self.thread.join().unwrap();
        self.address
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_member_that_dies_in_silence_is_missed_after_the_idle_timeout() {
    let authority = Authority::new();
    let quick = |settings: &mut TransportSettings| {
        settings.idle_timeout = Duration::from_millis(800);
        settings.keep_alive = Some(Duration::from_millis(100));
    };
    let mut b = Build::new(&authority, 2).set(quick).open();
    let mortal = Mortal::start(Build::new(&authority, 1).set(quick), b.address());
    assert_eq!(b.link_up().await.0, member(1));
    mortal.kill();
    let (gone, reason) = b.link_down().await;
    assert_eq!(gone, member(1));
    assert!(reason.contains("timed out"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_member_that_restarts_on_its_port_is_told_again() {
    let authority = Authority::new();
    let mut b = cell(&authority, 2);
    let mortal = Mortal::start(Build::new(&authority, 1), b.address());
    assert_eq!(b.link_up().await, (member(1), mortal.address, false));
    let address = mortal.kill();
    let again = Build::new(&authority, 1).set(|settings| settings.listen = address);
    let mut a = again.open();
    a.link_to(&mut b).await;
    // b has not detected the failure of the first process, but packets already reach the second.
    assert_eq!(b.transport.links().len(), 1);
    b.reaches(&mut a).await;
}

#[tokio::test]
async fn a_full_pool_refuses_cells_and_gives_the_least_used_link_to_a_coordinator() {
    let authority = Authority::new();
    let mut full = Build::new(&authority, 9).set(|settings| settings.max_links = 2).open();
    let (mut a, mut b, mut c) = (cell(&authority, 1), cell(&authority, 2), cell(&authority, 3));
    a.link_to(&mut full).await;
    b.link_to(&mut full).await;
    a.reaches(&mut full).await;
    c.transport.dial(None, full.address()).unwrap();
    let (_, reason) = c.dial_failed().await;
    assert!(reason.contains("as many links"), "{reason}");
    assert_eq!(full.transport.counters().of(Reason::PoolFull), 1);

    let mut boss = Build::of_kind(&authority, MemberKind::Coordinator, 4).open();
    boss.transport.dial(None, full.address()).unwrap();
    assert_eq!(boss.link_up().await.0, full.id);
    // a was used later than b.
    assert_eq!(b.link_down().await.0, full.id);
    let mut told = [full.next().await, full.next().await].map(|event| match event {
        TransportEvent::LinkUp { peer, .. } => ("up", peer.identity.member),
        TransportEvent::LinkDown { member, .. } => ("down", member),
        other => panic!("{other:?}"),
    });
    told.sort();
    assert_eq!(told, [("down", b.id), ("up", boss.id)]);
    assert_eq!(full.transport.counters().of(Reason::Displaced), 1);
    a.reaches(&mut full).await;
}

/// Sockets that never answer. The caller keeps them open.
fn black_holes(count: usize) -> Vec<UdpSocket> {
    (0..count).map(|_| UdpSocket::bind(loopback()).unwrap()).collect()
}

#[tokio::test]
async fn silent_addresses_do_not_hold_up_a_dial_while_there_is_a_place() {
    let authority = Authority::new();
    let (mut a, b) = (cell(&authority, 1), cell(&authority, 2));
    let holes = black_holes(7);
    for hole in &holes {
        a.transport.dial(None, hole.local_addr().unwrap()).unwrap();
    }
    a.transport.dial(Some(b.id), b.address()).unwrap();
    assert_eq!(a.link_up().await.0, b.id, "before any of the others failed");
}

#[tokio::test]
async fn more_dials_than_places_wait_for_their_turn_and_each_is_told() {
    let authority = Authority::new();
    let quick = |settings: &mut TransportSettings| settings.dial_deadline = Duration::from_secs(2);
    let (mut a, b) = (Build::new(&authority, 1).set(quick).open(), cell(&authority, 2));
    let holes = black_holes(8);
    for hole in &holes {
        a.transport.dial(None, hole.local_addr().unwrap()).unwrap();
        let again = a.transport.dial(None, hole.local_addr().unwrap());
        assert_eq!(again, Err(DialRefused::UnderWay));
    }
    a.transport.dial(Some(b.id), b.address()).unwrap();
    let elsewhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    assert_eq!(a.transport.dial(Some(b.id), elsewhere), Err(DialRefused::UnderWay));
    let mut up_at = None;
    let mut failed = 0;
    while up_at.is_none() || failed < 8 {
        match a.next().await {
            TransportEvent::DialFailed { reason, .. } => {
                assert!(reason.contains("in time"), "{reason}");
                failed += 1;
            }
            TransportEvent::LinkUp { .. } => up_at = Some(failed),
            other => panic!("{other:?}"),
        }
    }
    assert!(up_at.unwrap() >= 1, "the ninth had to wait for one of the eight");
    // A reported failure frees the slot for the next dial.
    a.transport.dial(None, holes[0].local_addr().unwrap()).unwrap();
}

#[tokio::test]
async fn dials_are_bounded() {
    let authority = Authority::new();
    let a = cell(&authority, 1);
    let hole = black_holes(1);
    let port = hole[0].local_addr().unwrap().port();
    let to = |n: usize| SocketAddr::from(([127, 1, 0, u8::try_from(n).unwrap()], port));
    for n in 0..DIALS {
        a.transport.dial(None, to(n)).unwrap();
    }
    let more = SocketAddr::from(([127, 2, 0, 1], port));
    assert_eq!(a.transport.dial(None, more), Err(DialRefused::Full));
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_from_the_next_handshake_on() {
    let authority = Authority::new();
    let (mut a, mut b, mut c) = (cell(&authority, 1), cell(&authority, 2), cell(&authority, 3));
    a.link_to(&mut b).await;
    let renewed = authority.tls(MemberKind::Coordinator, 1);
    a.transport.replace_tls(renewed).unwrap();
    a.reaches(&mut b).await;
    // As the dialling side, and as the answering side.
    a.transport.dial(None, b.address()).unwrap();
    let TransportEvent::LinkUp { peer, .. } = b.next().await else { panic!("no LinkUp") };
    assert_eq!((peer.identity.member, peer.identity.kind), (a.id, MemberKind::Coordinator));
    c.transport.dial(Some(a.id), a.address()).unwrap();
    let TransportEvent::LinkUp { peer, .. } = c.next().await else { panic!("no LinkUp") };
    assert_eq!(peer.identity.kind, MemberKind::Coordinator);
}

#[tokio::test]
async fn links_survive_a_new_socket_on_either_side() {
    let authority = Authority::new();
    let (mut a, mut b) = (cell(&authority, 1), cell(&authority, 2));
    a.link_to(&mut b).await;
    let (old_a, old_b) = (a.address(), b.address());
    assert_eq!(a.transport.rebind().await.unwrap(), old_a);
    a.reaches(&mut b).await;
    b.reaches(&mut a).await;
    assert_eq!(b.transport.rebind().await.unwrap(), old_b);
    a.reaches(&mut b).await;
    b.reaches(&mut a).await;
    assert_eq!(b.transport.counters().of(Reason::NoLink), 0);
}

#[tokio::test]
async fn one_socket_serves_both_families_and_ipv4_looks_like_ipv4() {
    let authority = Authority::new();
    let anywhere =
        |settings: &mut TransportSettings| settings.listen = TransportSettings::anywhere();
    let mut a = Build::new(&authority, 1).set(anywhere).open();
    let mut b = Build::new(&authority, 2).set(anywhere).open();
    let four = SocketAddr::from((Ipv4Addr::LOCALHOST, b.address().port()));
    a.transport.dial(Some(b.id), four).unwrap();
    assert_eq!(a.link_up().await, (b.id, four, true));
    assert!(b.link_up().await.1.is_ipv4());
    a.transport.close(b.id, "over to IPv6");
    a.link_down().await;
    b.link_down().await;
    let six = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, b.address().port()));
    if UdpSocket::bind((std::net::Ipv6Addr::LOCALHOST, 0)).is_ok() && b.address().is_ipv6() {
        a.transport.dial(Some(b.id), six).unwrap();
        assert_eq!(a.link_up().await, (b.id, six, true));
    } else {
        eprintln!("SKIPPED the half with IPv6: this machine has none");
    }
}

#[tokio::test]
async fn two_releases_speak_the_newest_version_that_both_know() {
    let authority = Authority::new();
    let speaking = |n: u8, versions: &[u16]| {
        Build::new(&authority, n).set(|settings| settings.versions = versions.to_vec()).open()
    };
    for (dialling, answering, agreed) in [
        (&[1][..], &[1][..], Some(1)),
        (&[2, 1], &[1], Some(1)),
        (&[1], &[2, 1], Some(1)),
        (&[2, 1], &[2, 1], Some(2)),
        (&[3, 2], &[2, 1], Some(2)),
        (&[2, 3], &[1, 2], Some(2)),
        (&[3, 2], &[1], None),
    ] {
        let (mut a, mut b) = (speaking(1, dialling), speaking(2, answering));
        let context = format!("{dialling:?} dials {answering:?}");
        a.transport.dial(None, b.address()).unwrap();
        match agreed {
            Some(version) => {
                a.link_up().await;
                b.link_up().await;
                assert_eq!(a.transport.link(b.id).unwrap().version, version, "{context}");
                assert_eq!(b.transport.link(a.id).unwrap().version, version, "{context}");
            }
            None => {
                a.dial_failed().await;
                b.counted(Reason::UnknownProtocol, 1).await;
            }
        }
    }
}
