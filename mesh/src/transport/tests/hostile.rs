//! Hostile clients and members: they are refused and counted, and other members are not affected.

use quinn::{ReadToEndError, RecvStream};

use super::*;
use crate::request::RpcRefusal;
use crate::request::frame::{REPLY_HEAD, ReplyHead, RequestHead};

async fn closed(raw: &Raw) -> String {
    patiently("the end of a connection", raw.connection.closed()).await.to_string()
}

#[tokio::test]
async fn another_cluster_s_certificates_are_refused_on_both_sides() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let (a, mut b) = (cell(&authority, 1), cell(&foreign, 2));
    // b does not trust a's certificate.
    b.transport.dial(None, a.address()).unwrap();
    b.dial_failed().await;
    // A client that trusts the server is still rejected because of its own certificate.
    let mut mixed = foreign.tls(MemberKind::Cell, 3);
    let mut client = (*mixed.client).clone();
    let trusting = rustls::client::WebPkiServerVerifier::builder_with_provider(
        authority.roots(),
        Arc::new(default_provider()),
    );
    client.dangerous().set_certificate_verifier(trusting.build().unwrap());
    mixed.client = Arc::new(client);
    let mut c = Build { tls: mixed, ..Build::new(&foreign, 3) }.open();
    c.transport.dial(None, a.address()).unwrap();
    c.dial_failed().await;
    a.counted(Reason::HandshakeFailed, 2).await;
    assert!(a.transport.links().is_empty());
}

#[tokio::test]
async fn who_has_no_certificate_or_a_strange_one_is_closed_before_anything_is_read() {
    let authority = Authority::new();
    let a = cell(&authority, 1);
    let nobody = raw_with(authority.stranger(), &[b"volvox-mesh/1"], a.address()).await.unwrap();
    let _ = nobody.connection.send_datagram(Bytes::from_static(b"hello"));
    assert!(closed(&nobody).await.contains("malformed"));
    a.counted(Reason::NoIdentity, 1).await;
    let odd = (*authority.tls_named("whatever").client).clone();
    let odd = raw_with(odd, &[b"volvox-mesh/1"], a.address()).await.unwrap();
    assert!(closed(&odd).await.contains("malformed"));
    a.counted(Reason::BadCertificate, 1).await;
    assert!(a.transport.links().is_empty());
}

#[tokio::test]
async fn unknown_protocols_are_refused_in_the_handshake() {
    let authority = Authority::new();
    let a = cell(&authority, 1);
    for protocols in [&[&b"h3"[..]][..], &[b"volvox-mesh/2"], &[]] {
        assert!(raw_with(authority.stranger(), protocols, a.address()).await.is_err());
    }
    a.counted(Reason::UnknownProtocol, 3).await;
}

#[tokio::test]
async fn an_identification_that_panics_costs_one_handshake() {
    let authority = Authority::new();
    let mut tls = authority.tls(MemberKind::Cell, 1);
    tls.identify = Arc::new(|shown| {
        let peer = identify(shown)?;
        assert_ne!(peer.identity.member, member(13), "on purpose, for a test");
        Ok(peer)
    });
    let mut a = Build { tls, ..Build::new(&authority, 1) }.open();
    let (mut b, mut bad) = (cell(&authority, 2), cell(&authority, 13));
    bad.transport.dial(None, a.address()).unwrap();
    bad.dial_failed().await;
    a.transport.dial(None, bad.address()).unwrap();
    a.dial_failed().await;
    a.counted(Reason::Panicked, 2).await;
    b.link_to(&mut a).await;
}

#[tokio::test]
async fn many_handshakes_must_prove_their_address_and_too_many_are_shut_out() {
    let authority = Authority::new();
    let mut wary = Build::new(&authority, 1).set(|settings| settings.half_open_retry = 0).open();
    let mut b = cell(&authority, 2);
    b.link_to(&mut wary).await;
    assert!(wary.transport.counters().of(Reason::Retried) >= 1);
    let shut = Build::new(&authority, 3).set(|settings| {
        settings.half_open_retry = 0;
        settings.half_open_most = 0;
    });
    let shut = shut.open();
    let quick =
        |settings: &mut TransportSettings| settings.dial_deadline = Duration::from_millis(500);
    let mut c = Build::new(&authority, 4).set(quick).open();
    c.transport.dial(None, shut.address()).unwrap();
    c.dial_failed().await;
    shut.counted(Reason::HalfOpenFull, 1).await;
}

/// Sends these bytes and returns the refusal. `finish`: whether the stream ends after them.
async fn refusal(raw: &Raw, bytes: &[u8], finish: bool) -> RpcRefusal {
    let (mut send, mut recv) = raw.connection.open_bi().await.unwrap();
    send.write_all(bytes).await.unwrap();
    if finish {
        send.finish().unwrap();
    }
    reply(&mut recv).await
}

async fn reply(recv: &mut RecvStream) -> RpcRefusal {
    let bytes = patiently("a refusal", recv.read_to_end(4096)).await.unwrap();
    let (head, text) = bytes.split_first_chunk::<REPLY_HEAD>().unwrap();
    ReplyHead::decode(head).unwrap().refusal(text)
}

#[tokio::test]
async fn malformed_requests_are_refused_and_disturb_nobody() {
    let authority = Authority::new();
    let (mut a, mut b) = (cell(&authority, 1), cell(&authority, 2));
    b.link_to(&mut a).await;
    let raw = raw(&authority, 3, &mut a).await;
    let head = |length: u32, deadline: Duration| RequestHead { method: 1, deadline, length };
    let second = Duration::from_secs(1);
    let full = head(10, PATIENCE).encode();

    for cut in 0..full.len() {
        let refused = refusal(&raw, &full[..cut], true).await;
        assert!(matches!(refused, RpcRefusal::Malformed(_)), "{cut}: {refused}");
    }
    assert!(matches!(
        refusal(&raw, &[full.as_slice(), b"123"].concat(), true).await,
        RpcRefusal::Malformed(_)
    ));
    assert!(matches!(
        refusal(&raw, b"GET / HTTP/1.1\r\n\r\n", true).await,
        RpcRefusal::Malformed(_)
    ));
    assert_eq!(
        refusal(&raw, &head(u32::MAX, PATIENCE).encode(), false).await,
        RpcRefusal::TooLarge
    );
    // A body that is claimed in the head and never sent.
    let claim = head(2 << 20, second).encode();
    assert_eq!(refusal(&raw, &claim, false).await, RpcRefusal::DeadlineExceeded);
    // A deadline of zero.
    assert_eq!(
        refusal(&raw, &head(5, Duration::ZERO).encode(), false).await,
        RpcRefusal::DeadlineExceeded
    );
    // Bytes after the body are ignored.
    let more = [head(0, PATIENCE).encode().as_slice(), &[1; 500]].concat();
    assert_eq!(refusal(&raw, &more, true).await, RpcRefusal::Unsupported);
    b.reaches(&mut a).await;
    assert_eq!(a.transport.counters().of(Reason::Panicked), 0);
    assert!(raw.connection.close_reason().is_none());
}

#[tokio::test]
async fn an_endless_request_is_stopped() {
    let authority = Authority::new();
    let (mut a, mut b) = (cell(&authority, 1), cell(&authority, 2));
    b.link_to(&mut a).await;
    let raw = raw(&authority, 3, &mut a).await;
    let (mut send, mut recv) = raw.connection.open_bi().await.unwrap();
    let head = RequestHead { method: 1, deadline: PATIENCE, length: 100 };
    send.write_all(&head.encode()).await.unwrap();
    let endless = async { while send.write_all(&[0; 4096]).await.is_ok() {} };
    patiently("the stop", endless).await;
    assert_eq!(reply(&mut recv).await, RpcRefusal::Unsupported);
    b.reaches(&mut a).await;
}

#[tokio::test]
async fn messages_without_end_or_beyond_the_limit_are_dropped() {
    let authority = Authority::new();
    let quick =
        |settings: &mut TransportSettings| settings.message_deadline = Duration::from_millis(300);
    let mut slow = Build::new(&authority, 1).set(quick).open();
    let raw_slow = raw(&authority, 3, &mut slow).await;
    let mut send = raw_slow.connection.open_uni().await.unwrap();
    send.write_all(b"and then").await.unwrap();
    slow.counted(Reason::IncomingBroken, 1).await;

    let (mut a, mut b) = (cell(&authority, 1), cell(&authority, 2));
    b.link_to(&mut a).await;
    let raw = raw(&authority, 3, &mut a).await;
    let mut send = raw.connection.open_uni().await.unwrap();
    let endless = async { while send.write_all(&[0; 4096]).await.is_ok() {} };
    patiently("the stop", endless).await;
    a.counted(Reason::IncomingOversized, 1).await;
    // More streams than may be open at the same time: the sender must wait with the others.
    let mut open = Vec::new();
    while let Ok(stream) =
        tokio::time::timeout(Duration::from_millis(300), raw.connection.open_uni()).await
    {
        open.push(stream.unwrap());
    }
    assert!(open.len() <= 16, "{} streams were allowed", open.len());
    b.reaches(&mut a).await;
}

#[tokio::test]
async fn requests_that_hang_are_bounded_and_others_are_served() {
    let authority = Authority::new();
    let (mut a, mut b) = (cell(&authority, 1), cell(&authority, 2));
    b.link_to(&mut a).await;
    let raw = raw(&authority, 3, &mut a).await;
    let head = RequestHead { method: 1, deadline: PATIENCE, length: 9 }.encode();
    let mut hanging = Vec::new();
    let mut busy = 0;
    for _ in 0..70 {
        let (mut send, mut recv) = patiently("a stream", raw.connection.open_bi()).await.unwrap();
        send.write_all(&head).await.unwrap();
        match tokio::time::timeout(Duration::from_millis(20), recv.read_to_end(64)).await {
            Err(_) => hanging.push((send, recv)),
            Ok(Ok(_) | Err(ReadToEndError::TooLong)) => busy += 1,
            Ok(Err(error)) => panic!("{error}"),
        }
    }
    a.counted(Reason::RequestBusy, 1).await;
    assert!(busy <= 6 && hanging.len() >= 64, "{busy} of {}", hanging.len());
    b.reaches(&mut a).await;
}

#[tokio::test]
async fn a_server_that_says_no_welcome_is_no_link() {
    let authority = Authority::new();
    let settings = TransportSettings::cell(loopback());
    let server = settings.server(&authority.tls(MemberKind::Cell, 2)).unwrap();
    let endpoint = Endpoint::server(server, loopback()).unwrap();
    let address = endpoint.local_addr().unwrap();
    let rude = tokio::spawn(async move {
        let connection = endpoint.accept().await.unwrap().accept().unwrap().await.unwrap();
        let mut stream = connection.open_uni().await.unwrap();
        stream.write_all(b"go away").await.unwrap();
        connection.closed().await
    });
    let mut a = cell(&authority, 1);
    a.transport.dial(Some(member(2)), address).unwrap();
    let (_, reason) = a.dial_failed().await;
    assert!(reason.contains("welcome"), "{reason}");
    patiently("its end", rude).await.unwrap();
    assert_eq!(a.transport.counters().of(Reason::DialFailed), 1);
}

#[tokio::test]
async fn a_flood_of_garbage_leaves_the_endpoint_alive() {
    let authority = Authority::new();
    let (mut a, mut b) = (cell(&authority, 1), cell(&authority, 2));
    let socket = std::net::UdpSocket::bind(loopback()).unwrap();
    let mut bytes = [0_u8; 1_300];
    for n in 0..2_000_usize {
        getrandom::fill(&mut bytes).unwrap();
        // Half of them look like the first packet of a handshake.
        if n % 2 == 0 {
            bytes[..6].copy_from_slice(&[0xc0, 0, 0, 0, 1, 8]);
        }
        let _ = socket.send_to(&bytes[..n % 1_300], a.address());
    }
    b.link_to(&mut a).await;
    b.reaches(&mut a).await;
    assert_eq!(a.transport.counters().of(Reason::Panicked), 0);
}
