//! Those who mean harm, over real QUIC: one with a valid certificate, and strangers. The members that
//! they attack are processes, so that a panic or memory that grows is seen.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod process;
mod stage;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use process::{Cluster, Member, Orders};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connection, Endpoint};
use stage::{block_on, loopback, wait};
use volvox_mesh::identity::{MemberId, MemberKind};
use volvox_mesh::member::PROTOCOL;
use volvox_mesh::message::{Message, Roots};
use volvox_mesh::record::{
    AliveRecord, Content, Item, Record, Revocation, Suspicion, Topic, Version,
};
use volvox_mesh::simulation::sample_load;
use volvox_mesh::tls::authenticator::ClusterAuthenticator;
use volvox_mesh::tls::certificate::Fingerprint;
use volvox_mesh::tls::config::{
    ALPN_MESH, SERVER_NAME, client_config, joining_config, system_clock,
};
use volvox_mesh::tls::credentials::Credentials;

/// By how much the memory of one who is attacked may grow. Queues, buffers and what the allocator
/// keeps; an attack of the length here would need several times this if something held on to it.
const GROWTH_KIB: u64 = 64 << 10;

/// How many messages without an end there are.
const ENDLESS: u64 = 12;

/// How long an exchange of ours may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run of this is a member process; see `process`.
#[test]
fn member_process() {
    process::run_if_asked();
}

/// A coordinator and cells on loopback, and somebody's credentials beside them.
struct Site {
    cells: Vec<Member>,
    coordinator: Member,
    at: Vec<SocketAddr>,
    ids: Vec<MemberId>,
    insider: Credentials,
    _cluster: Cluster,
}

impl Site {
    fn new(cells: usize) -> Site {
        let cluster = Cluster::new(([127, 0, 0, 1], 1).into());
        let now = system_clock()();
        let names: Vec<String> = (1..=cells).map(|n| format!("cell-{n}")).collect();
        let appoint =
            |name: &String| cluster.appoint(MemberKind::Cell, name, now).identity().member;
        let ids = names.iter().map(appoint).collect();
        let insider = cluster.appoint(MemberKind::Cell, "mallory", now);
        let coordinator = Member::spawn(&cluster.coordinator(loopback()));
        let mut at = vec![coordinator.begins()];
        let seeds = vec![at[0].to_string()];
        let orders = names
            .iter()
            .map(|name| Orders { seeds: seeds.clone(), ..cluster.cell(name, loopback()) });
        let cells: Vec<Member> = orders.map(|orders| Member::spawn(&orders)).collect();
        at.extend(cells.iter().map(Member::begins));
        let site = Site { cells, coordinator, at, ids, insider, _cluster: cluster };
        site.all_know_all();
        site
    }

    fn all(&self) -> impl Iterator<Item = &Member> {
        std::iter::once(&self.coordinator).chain(&self.cells)
    }

    /// All members but the insider see all others.
    fn all_know_all(&self) {
        let mut names: Vec<&str> = self.all().map(|member| member.name.as_str()).collect();
        names.sort_unstable();
        let others = |member: &Member| {
            let present = member.present();
            present.into_iter().filter(|name| name != "mallory").collect::<Vec<_>>()
        };
        for member in self.all() {
            wait(
                || others(member) == names,
                || format!("{} sees {:#}", member.name, member.state()),
            );
        }
    }
}

/// A connection that says whatever it likes, and answers pings.
struct Raw {
    connection: Connection,
    heard: Arc<Mutex<Vec<Item>>>,
    _endpoint: Endpoint,
}

async fn dial(tls: rustls::ClientConfig, to: SocketAddr) -> Result<Raw, String> {
    let crypto = QuicClientConfig::try_from(Arc::new(tls)).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let endpoint = Endpoint::client(loopback()).unwrap();
    let connecting = endpoint.connect_with(config, to, SERVER_NAME).unwrap();
    let connection = connecting.await.map_err(|error| error.to_string())?;
    // Its first stream is the welcome: without it we are not in.
    let mut welcome = connection.accept_uni().await.map_err(|error| error.to_string())?;
    welcome.read_to_end(64).await.map_err(|error| error.to_string())?;
    let heard = Arc::new(Mutex::new(Vec::new()));
    tokio::spawn(listen(connection.clone(), heard.clone()));
    Ok(Raw { connection, heard, _endpoint: endpoint })
}

async fn listen(connection: Connection, heard: Arc<Mutex<Vec<Item>>>) {
    loop {
        let bytes = tokio::select! {
            datagram = connection.read_datagram() => datagram.ok(),
            stream = connection.accept_uni() => match stream {
                Ok(mut stream) => stream.read_to_end(1 << 20).await.ok().map(Bytes::from),
                Err(_) => None,
            },
        };
        let Some(bytes) = bytes else { return };
        match Message::decode(&bytes) {
            Ok(Message::Ping { seq, items, roots }) => {
                heard.lock().unwrap().extend(items);
                let ack = Message::Ack { seq, roots, items: Vec::new() };
                drop(connection.send_datagram(ack.encode().into()));
            }
            Ok(Message::Gossip { items } | Message::Records { items }) => {
                heard.lock().unwrap().extend(items);
            }
            _ => {}
        }
    }
}

impl Raw {
    async fn say(&self, message: &Message) {
        self.say_bytes(&message.encode()).await;
    }

    /// False: the link is gone.
    async fn say_bytes(&self, bytes: &[u8]) -> bool {
        let Ok(mut stream) = self.connection.open_uni().await else { return false };
        // Who listens may break it off.
        let _broken_off = stream.write_all(bytes).await;
        let _ended = stream.finish();
        true
    }

    fn whisper(&self, bytes: impl Into<Bytes>) {
        drop(self.connection.send_datagram(bytes.into()));
    }

    /// The records of a member that we were told, the newest of each topic last.
    fn records_of(&self, member: MemberId) -> Vec<Arc<Record>> {
        let heard = self.heard.lock().unwrap();
        let records = heard.iter().filter_map(|item| match item {
            Item::Record(record) if record.subject == member => Some(record.clone()),
            Item::Record(_) | Item::Suspicion(_) => None,
        });
        records.collect()
    }
}

/// Waits on a runtime of its own; the connections live on `runtime`.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// An insider with a link to everybody, who has said who it is and asked who the others are.
struct Insider {
    links: Vec<Raw>,
    me: MemberId,
    name: volvox_protocol::id::CellId,
    authenticator: ClusterAuthenticator,
    runtime: tokio::runtime::Runtime,
}

impl Insider {
    fn new(site: &Site) -> Insider {
        let runtime = runtime();
        let me = site.insider.identity().member;
        let authenticator = site.insider.authenticator();
        let tls = client_config(&site.insider, &system_clock()).unwrap();
        let patiently = |dial| async move { tokio::time::timeout(PATIENCE, dial).await };
        let dial = |at: &SocketAddr| runtime.block_on(patiently(dial(tls.clone(), *at)));
        let dials = site.at.iter().map(|at| dial(at).expect("an answer").unwrap());
        let links: Vec<Raw> = dials.collect();
        let name = site.insider.identity().name.clone();
        let insider = Insider { links, me, name, authenticator, runtime };
        let address = insider.links[0]._endpoint.local_addr().unwrap();
        let alive = AliveRecord { address, leaf: false, left: false, protocol: PROTOCOL };
        insider.tell_all(&[insider.record(me, 1, Content::Alive(alive))]);
        site.coordinator.wait_for(&["c-1", "cell-1", "cell-2", "cell-3", "mallory"]);
        let wanted = site.ids.iter().map(|id| (*id, u8::MAX)).collect();
        let ask = Message::Want { wanted };
        insider.runtime.block_on(insider.links[0].say(&ask));
        for id in &site.ids {
            wait(
                || insider.record_of(*id, Topic::Load).is_some(),
                || format!("nothing was heard of {id}"),
            );
        }
        insider
    }

    /// A record about anybody, with our signature.
    fn record(&self, subject: MemberId, count: u32, content: Content) -> Item {
        let generation = system_clock()().as_nanos() / 1_000_000 + 3_600_000;
        let version = Version { generation, count };
        Item::Record(Arc::new(Record::signed(&self.authenticator, subject, version, content)))
    }

    fn record_of(&self, member: MemberId, topic: Topic) -> Option<Arc<Record>> {
        let all = self.links[0].records_of(member);
        all.into_iter().filter(|record| record.topic == topic).max_by_key(|r| r.version)
    }

    fn tell_all(&self, items: &[Item]) {
        let message = Message::Gossip { items: items.to_vec() };
        self.runtime.block_on(async {
            for link in &self.links {
                let told = tokio::time::timeout(PATIENCE, link.say(&message)).await;
                told.expect("everybody still takes messages");
            }
        });
    }

    /// Lies about the others, in every way that there is.
    fn slander(&self, site: &Site) {
        for (place, id) in site.ids.iter().enumerate() {
            let name = site.cells[place].holder_name();
            let alive = self.record_of(*id, Topic::Alive).unwrap();
            let address = alive.alive().unwrap().address;
            let gone = Content::Alive(AliveRecord {
                address,
                leaf: false,
                left: true,
                protocol: PROTOCOL,
            });
            let load = || Content::Load(sample_load(name.clone(), 1));
            let mut altered = (*alive).clone();
            altered.version.count += 1;
            let other = site.ids[(place + 1) % site.ids.len()];
            let alone = Suspicion::signed(&self.authenticator, self.me, *id, alive.version);
            let borrowed = Suspicion::signed(&self.authenticator, other, *id, alive.version);
            self.tell_all(&[
                self.record(*id, 9, gone),
                self.record(*id, 9, load()),
                Item::Record(Arc::new(altered)),
                Item::Suspicion(Arc::new(borrowed)),
                Item::Suspicion(Arc::new(alone)),
                self.record(self.me, 9, load()),
                self.record(
                    self.me,
                    9,
                    Content::Revocations(vec![Revocation {
                        member: *id,
                        until_s: u64::from(u32::MAX),
                    }]),
                ),
            ]);
        }
    }
}

impl Member {
    fn holder_name(&self) -> volvox_protocol::id::CellId {
        volvox_protocol::id::CellId::new(&self.name).unwrap()
    }
}

#[test]
fn an_insider_can_neither_evict_nor_impersonate_nor_misreport_another() {
    let site = Site::new(3);
    for (free, cell) in (100..).zip(&site.cells) {
        cell.publish(free);
        site.all().for_each(|member| member.wait_for_load(&cell.name, free));
    }
    let insider = Insider::new(&site);
    let old: Vec<Item> =
        site.ids.iter().flat_map(|id| insider.links[0].records_of(*id)).map(Item::Record).collect();
    insider.slander(&site);
    for member in site.all() {
        for reason in ["forged", "misreported"] {
            wait(|| member.count(reason) >= 3, || format!("{:#}", member.state()));
        }
    }
    // What was true once is told again, after it is not any more.
    for (free, cell) in (200..).zip(&site.cells) {
        cell.publish(free);
        site.all().for_each(|member| member.wait_for_load(&cell.name, free));
    }
    (0..20).for_each(|_| insider.tell_all(&old));
    // Longer than any trial of the lan's pace: 5 s, and thrice that for cells.
    let began = Instant::now();
    let mut round = Duration::ZERO;
    wait(
        || {
            if began.elapsed() > round {
                round += Duration::from_secs(4);
                insider.slander(&site);
            }
            began.elapsed() > Duration::from_secs(18)
        },
        || "time stands still".to_owned(),
    );
    for member in site.all() {
        assert_eq!(member.found_missing(), [""; 0], "as {} found", member.name);
        for (free, cell) in (200..).zip(&site.cells) {
            assert_eq!(member.view(&cell.name)["load"], free, "as {} knows", member.name);
        }
    }
    site.all_know_all();
}

#[test]
fn an_insider_can_exhaust_nobody() {
    let site = Site::new(3);
    site.cells.iter().for_each(|cell| cell.publish(100));
    let insider = Insider::new(&site);
    let coordinator = &site.coordinator;
    let before = coordinator.resident_kib();
    let link = &insider.links[0];
    insider.runtime.block_on(async {
        for _ in 0..8 {
            link.say_bytes(&vec![1; 2 << 20]).await;
        }
    });
    wait(|| coordinator.count("incoming_oversized") >= 8, || format!("{:#}", coordinator.state()));
    // Messages without an end. Nearly as many as there may be: the last few that are free again are
    // not announced one by one. Each is given up.
    let endless = insider.runtime.block_on(async {
        let open = async {
            let mut endless = Vec::new();
            for _ in 0..ENDLESS {
                let mut stream = link.connection.open_uni().await.unwrap();
                stream.write_all(&[1; 60_000]).await.unwrap();
                endless.push(stream);
            }
            endless
        };
        tokio::time::timeout(PATIENCE, open).await.expect("streams are let go again")
    });
    let given_up = || coordinator.count("incoming_broken");
    wait(|| given_up() >= ENDLESS, || format!("{:#}", coordinator.state()));
    drop(endless);
    // As fast as it goes, until the link is gone.
    insider.runtime.block_on(async {
        let flood = async {
            for n in 0_u32.. {
                let garbage = n.to_le_bytes().repeat(usize::try_from(n % 250).unwrap() + 1);
                link.whisper(garbage.clone());
                let roots = Roots { membership: u64::from(n), load: 7 };
                link.whisper(Message::Ping { seq: n, roots, items: Vec::new() }.encode());
                if !link.say_bytes(&garbage).await {
                    break;
                }
            }
        };
        tokio::time::timeout(PATIENCE, flood).await.expect("the link is ended");
    });
    for (reason, least) in [("malformed", 100), ("over_share", 1_000), ("barred", 1)] {
        wait(|| coordinator.count(reason) >= least, || format!("{:#}", coordinator.state()));
    }
    let after = coordinator.resident_kib();
    assert!(after < before + GROWTH_KIB, "{before} KiB became {after} KiB");
    for member in site.all() {
        let missing = member.found_missing();
        assert!(missing.iter().all(|name| name == "mallory"), "{}: {missing:?}", member.name);
    }
    site.all_know_all();
    site.cells[0].publish(200);
    coordinator.wait_for_load("cell-1", 200);
    coordinator.wait_for_answer_of("cell-2");
}

/// Forgeries that have to be checked, and the insider's own words, which hold; by stream and by
/// datagram. When the link is ended, another one is made.
async fn flood(
    tls: rustls::ClientConfig,
    to: SocketAddr,
    lies: Vec<Vec<u8>>,
    counter: Arc<AtomicU64>,
) {
    loop {
        let Ok(link) = dial(tls.clone(), to).await else {
            tokio::task::yield_now().await;
            continue;
        };
        'link: loop {
            for lie in &lies {
                counter.fetch_add(1, Ordering::Relaxed);
                if lie.len() <= 1_100 {
                    link.whisper(lie.clone());
                }
                if !link.say_bytes(lie).await {
                    break 'link;
                }
            }
        }
    }
}

#[test]
fn a_flood_of_forgeries_holds_up_nobody_else() {
    let site = Site::new(3);
    site.cells.iter().for_each(|cell| cell.publish(100));
    let insider = Insider::new(&site);
    let name = insider.name.clone();
    let mut lies = Vec::new();
    // Fewer in each message than end a link at once, and another one each time.
    for count in 0..200 {
        let items = site.ids.iter().zip(&site.cells).map(|(id, cell)| {
            insider.record(*id, count, Content::Load(sample_load(cell.holder_name(), count)))
        });
        lies.push(Message::Gossip { items: items.collect() }.encode());
    }
    // What holds, a thousand new versions in each message.
    for nth in 0..4 {
        let words = (0..1_000).map(|count| {
            let load = Content::Load(sample_load(name.clone(), count));
            insider.record(insider.me, 1_000 * nth + count, load)
        });
        lies.push(Message::Gossip { items: words.collect() }.encode());
    }
    let sent = Arc::new(AtomicU64::new(0));
    let tls = client_config(&site.insider, &system_clock()).unwrap();
    let flood = insider.runtime.spawn(flood(tls, site.at[0], lies, sent.clone()));
    for (free, round) in (200..230).zip(1..) {
        // Not before the flood has got somewhere since the last round.
        wait(
            || sent.load(Ordering::Relaxed) >= round * 100,
            || "the flood stands still".to_owned(),
        );
        let cell = &site.cells[usize::try_from(round % 3).unwrap()];
        cell.publish(free);
        site.coordinator.wait_for_load(&cell.name, free);
    }
    flood.abort();
    assert!(site.coordinator.count("forged") > 50, "{:#}", site.coordinator.state());
    for member in site.all() {
        let missing = member.found_missing();
        assert!(missing.iter().all(|name| name == "mallory"), "{}: {missing:?}", member.name);
    }
    site.all_know_all();
}

#[test]
fn strangers_get_no_link() {
    let cluster = Cluster::new(([127, 0, 0, 1], 1).into());
    let now = system_clock()();
    let good = cluster.appoint(MemberKind::Cell, "mallory", now);
    let year = Duration::from_secs(365 * 86_400);
    let past = volvox_protocol::time::Timestamp::from_nanos(
        now.as_nanos() - u64::try_from(year.as_nanos()).unwrap(),
    );
    let expired = cluster.appoint(MemberKind::Cell, "too-late", past);
    let elsewhere = Cluster::new(([127, 0, 0, 1], 1).into());
    let foreign = elsewhere.appoint(MemberKind::Cell, "mallory", now);
    let coordinator = Member::spawn(&cluster.coordinator(loopback()));
    let at = coordinator.begins();
    let clock = system_clock();
    let with_certificate_of = |other: &Credentials| {
        let mut tls = client_config(&good, &clock).unwrap();
        let other = client_config(other, &clock).unwrap();
        tls.client_auth_cert_resolver = other.client_auth_cert_resolver;
        tls
    };
    let mut nobody = joining_config(Fingerprint::of(good.ca().der()), &clock).unwrap();
    nobody.alpn_protocols = vec![ALPN_MESH.to_vec()];
    for (tls, reason, words) in [
        (nobody, "no_identity", "the peer showed none"),
        (with_certificate_of(&foreign), "handshake_failed", "UnknownIssuer"),
        (with_certificate_of(&expired), "handshake_failed", "Expired"),
    ] {
        let before = coordinator.count(reason);
        let refused = block_on(async { tokio::time::timeout(PATIENCE, dial(tls, at)).await });
        let Err(refused) = refused.unwrap() else { panic!("{reason}: it has a link") };
        wait(|| coordinator.count(reason) > before, || format!("{:#}", coordinator.state()));
        assert!(refused.contains(words), "{reason}: {refused}");
    }
    assert_eq!(coordinator.present(), ["c-1"]);
    // The same with the right certificate is let in, so the above can fail.
    assert!(block_on(dial(with_certificate_of(&good), at)).is_ok());
}

#[test]
fn who_does_not_prove_its_address_gets_no_more_than_a_packet_above_thrice_what_it_sent() {
    let cluster = Cluster::new(([127, 0, 0, 1], 1).into());
    let good = cluster.appoint(MemberKind::Cell, "mallory", system_clock()());
    let coordinator = Member::spawn(&cluster.coordinator(loopback()));
    let at = coordinator.begins();
    // The first packet of a handshake, taken from a client that believes to dial.
    let trap = std::net::UdpSocket::bind(loopback()).unwrap();
    trap.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut initial = [0; 2_000];
    let (runtime, target) = (runtime(), trap.local_addr().unwrap());
    let tls = client_config(&good, &system_clock()).unwrap();
    let dialling = runtime.spawn(async move { dial(tls, target).await.map(drop) });
    let length = trap.recv(&mut initial).unwrap();
    dialling.abort();
    assert!(length >= 1_200, "{length} bytes are no first packet");
    let victim = std::net::UdpSocket::bind(loopback()).unwrap();
    victim.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    victim.send_to(&initial[..length], at).unwrap();
    let mut got = 0;
    // Until the coordinator has given the handshake up: it repeats itself in that time.
    wait(
        || {
            while let Ok(count) = victim.recv(&mut [0; 2_000]) {
                got += count;
            }
            coordinator.count("handshake_failed") > 0
        },
        || format!("{:#}", coordinator.state()),
    );
    assert!(got > 0, "it was not taken for a handshake");
    // QUIC's threefold. quinn lets the packet that reaches the limit go over it, never another one.
    assert!(got < 3 * length + 1_200, "{got} bytes for {length}");
}
