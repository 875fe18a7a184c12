//! Requests in both directions: replies, refusals, deadlines, cancellation, limits, versions.

use std::sync::atomic::AtomicUsize;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::*;
use crate::request::{AskError, Request, RpcRefusal};

/// Returns its bytes, repeated `times` times.
#[derive(Debug, Serialize, Deserialize)]
struct Echo {
    bytes: Vec<u8>,
    times: u32,
}

impl Request for Echo {
    const METHOD: u16 = 1;
    const NAME: &'static str = "echo";
    type Reply = Vec<u8>;
}

/// The same method in the previous release, which had no `times`.
#[derive(Debug, Serialize, Deserialize)]
struct OldEcho {
    bytes: Vec<u8>,
}

impl Request for OldEcho {
    const METHOD: u16 = 1;
    const NAME: &'static str = "echo";
    type Reply = Vec<u8>;
}

/// Waits until the test opens the gate.
#[derive(Debug, Serialize, Deserialize)]
struct Wait;

impl Request for Wait {
    const METHOD: u16 = 2;
    const NAME: &'static str = "wait";
    type Reply = u32;
}

/// Its handler panics.
#[derive(Debug, Serialize, Deserialize)]
struct Panic;

impl Request for Panic {
    const METHOD: u16 = 3;
    const NAME: &'static str = "panic";
    type Reply = u32;
}

/// State of the service of [`Wait`], for the test.
#[derive(Default)]
struct Gate {
    open: Notify,
    inside: AtomicUsize,
}

impl Gate {
    fn inside(&self) -> usize {
        self.inside.load(Ordering::SeqCst)
    }

    async fn holds(&self, count: usize) {
        until(&format!("{count} inside"), || self.inside() == count).await;
    }
}

/// Counts a request that is being served, until its future is dropped.
struct Guest(Arc<Gate>);

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

fn service(gate: &Arc<Gate>) -> Router {
    let gate = gate.clone();
    Router::new()
        .on(|from: MemberIdentity, echo: Echo, _| async move {
            if from.member == member(99) {
                return Err(RpcRefusal::NotAllowed("not you".into()));
            }
            Ok(echo.bytes.repeat(echo.times.max(1) as usize))
        })
        .on(move |_, _: Wait, _| {
            gate.inside.fetch_add(1, Ordering::SeqCst);
            let guest = Guest(gate.clone());
            async move {
                guest.0.open.notified().await;
                Ok(7)
            }
        })
        .on(|_, _: Panic, _| async { panic!("on purpose, for a test") })
}

/// Two linked members that serve requests, and the gates of both.
struct Pair {
    a: Side,
    b: Side,
    gate: Arc<Gate>,
    authority: Authority,
}

async fn pair(change: impl Fn(&mut TransportSettings)) -> Pair {
    let authority = Authority::new();
    let gate = Arc::new(Gate::default());
    let side = |n| Build::new(&authority, n).set(&change).serving(service(&gate)).open();
    let (mut a, mut b) = (side(1), side(2));
    a.link_to(&mut b).await;
    Pair { a, b, gate, authority }
}

fn echo(bytes: &[u8]) -> Echo {
    Echo { bytes: bytes.to_vec(), times: 1 }
}

impl Side {
    async fn asks<R: Request>(&self, to: MemberId, request: &R) -> Result<R::Reply, AskError> {
        patiently("a reply", self.transport.ask(to, request, PATIENCE)).await
    }
}

#[tokio::test]
async fn either_side_asks_on_the_one_connection() {
    let Pair { a, b, .. } = pair(|_| {}).await;
    assert_eq!(a.asks(b.id, &echo(b"from a")).await.unwrap(), b"from a");
    assert_eq!(b.asks(a.id, &echo(b"from b")).await.unwrap(), b"from b");
    let large = vec![5; (2 << 20) - 100];
    assert!(a.asks(b.id, &echo(&large)).await.unwrap() == large);
    assert!(matches!(a.asks(member(9), &echo(b"")).await, Err(AskError::NoLink)));
}

#[tokio::test]
async fn refusals_arrive_with_their_reason() {
    let Pair { a: _a, mut b, authority, .. } = pair(|_| {}).await;
    let mut stranger = cell(&authority, 99);
    stranger.link_to(&mut b).await;
    let refused = stranger.asks(b.id, &echo(b"x")).await.unwrap_err();
    assert_eq!(refused, AskError::Refused(RpcRefusal::NotAllowed("not you".into())));
    // b sends a request to a member that serves no method, like an older release.
    let refused = b.asks(stranger.id, &echo(b"x")).await.unwrap_err();
    assert_eq!(refused, AskError::Refused(RpcRefusal::Unsupported));
}

#[tokio::test]
async fn two_releases_of_a_request_understand_each_other() {
    let Pair { a, b, .. } = pair(|_| {}).await;
    // The older release asks the newer one, which reads zero for the missing field.
    assert_eq!(a.asks(b.id, &OldEcho { bytes: vec![1, 2] }).await.unwrap(), [1, 2]);
    // The newer release asks the older one, which ignores the unknown field.
    let old = Router::new().on(|_, old: OldEcho, _| async move { Ok(old.bytes) });
    let authority = Authority::new();
    let mut old = Build::new(&authority, 1).serving(old).open();
    let mut new = cell(&authority, 2);
    new.link_to(&mut old).await;
    let newer = Echo { bytes: vec![3], times: 5 };
    assert_eq!(new.asks(old.id, &newer).await.unwrap(), [3]);
}

#[tokio::test]
async fn a_deadline_ends_both_sides() {
    let Pair { a, b, gate, .. } = pair(|_| {}).await;
    let asked = a.transport.ask(b.id, &Wait, Duration::from_millis(300));
    assert_eq!(patiently("the deadline", asked).await, Err(AskError::Deadline));
    gate.holds(0).await;
    assert_eq!(a.asks(b.id, &echo(b"still")).await.unwrap(), b"still");
}

#[tokio::test]
async fn a_dropped_question_drops_its_answer() {
    let Pair { a, b, gate, .. } = pair(|_| {}).await;
    let rpc = tokio::spawn(a.transport.ask(b.id, &Wait, PATIENCE));
    gate.holds(1).await;
    rpc.abort();
    gate.holds(0).await;
    assert_eq!(a.asks(b.id, &echo(b"still")).await.unwrap(), b"still");
}

#[tokio::test]
async fn a_link_that_dies_loses_the_reply_and_drops_the_answer() {
    let Pair { a, b, gate, .. } = pair(|_| {}).await;
    let rpc = tokio::spawn(a.transport.ask(b.id, &Wait, PATIENCE));
    gate.holds(1).await;
    b.transport.close(a.id, "for a test");
    let lost = patiently("the loss", rpc).await.unwrap().unwrap_err();
    assert!(matches!(&lost, AskError::Lost(why) if why.contains("for a test")), "{lost}");
    gate.holds(0).await;
}

#[tokio::test]
async fn more_requests_than_a_link_may_have_are_busy_at_once() {
    let Pair { a, b, gate, .. } = pair(|settings| settings.requests_per_link = 2).await;
    let first = tokio::spawn(a.transport.ask(b.id, &Wait, PATIENCE));
    let second = tokio::spawn(a.transport.ask(b.id, &Wait, PATIENCE));
    gate.holds(2).await;
    assert_eq!(a.asks(b.id, &echo(b"x")).await, Err(AskError::Refused(RpcRefusal::Busy)));
    assert_eq!(b.transport.counters().of(Reason::RequestBusy), 1);
    // The other direction has its own slots.
    assert_eq!(b.asks(a.id, &echo(b"x")).await.unwrap(), b"x");
    gate.open.notify_waiters();
    for rpc in [first, second] {
        assert_eq!(patiently("the reply", rpc).await.unwrap(), Ok(7));
    }
    assert_eq!(a.asks(b.id, &echo(b"x")).await.unwrap(), b"x");
}

#[tokio::test]
async fn more_requests_than_are_served_in_all_are_busy_on_every_link() {
    let Pair { a, mut b, gate, authority } = pair(|settings| settings.requests_at_once = 1).await;
    let mut c = cell(&authority, 3);
    c.link_to(&mut b).await;
    let first = tokio::spawn(a.transport.ask(b.id, &Wait, PATIENCE));
    gate.holds(1).await;
    assert_eq!(c.asks(b.id, &echo(b"x")).await, Err(AskError::Refused(RpcRefusal::Busy)));
    first.abort();
    gate.holds(0).await;
    let served = async { while c.asks(b.id, &echo(b"x")).await.is_err() {} };
    patiently("a free place", served).await;
}

#[tokio::test]
async fn what_is_too_large_is_refused_by_whoever_sees_it_first() {
    let small = |settings: &mut TransportSettings| {
        settings.request_limit = 10_000;
        settings.reply_limit = 20_000;
    };
    let Pair { a, mut b, authority, .. } = pair(small).await;
    let given = 10_004; // Plus two bytes for the length and one for `times`.
    let own = a.asks(b.id, &echo(&[0; 10_001])).await.unwrap_err();
    assert_eq!(own, AskError::TooLarge { given, limit: 10_000 });
    let long = Echo { bytes: vec![0; 9_000], times: 3 };
    let refused = a.asks(b.id, &long).await.unwrap_err();
    assert_eq!(refused, AskError::Refused(RpcRefusal::TooLarge));

    // Other members have other limits.
    let gate = Arc::default();
    let mut c = Build::new(&authority, 3).serving(service(&gate)).open();
    c.link_to(&mut b).await;
    let refused = c.asks(b.id, &echo(&[0; 1_900_000])).await.unwrap_err();
    assert_eq!(refused, AskError::Refused(RpcRefusal::TooLarge));
    assert_eq!(b.transport.counters().of(Reason::RequestTooLarge), 2);
    let refused = b.asks(c.id, &long).await.unwrap_err();
    assert!(matches!(&refused, AskError::BadReply(why) if why.contains("20000")), "{refused}");
    assert_eq!(c.asks(b.id, &echo(b"still")).await.unwrap(), b"still");
}

#[tokio::test]
async fn a_handler_that_panics_fails_its_request_and_nothing_else() {
    let Pair { a, mut b, gate, .. } = pair(|_| {}).await;
    let other = tokio::spawn(a.transport.ask(b.id, &Wait, PATIENCE));
    gate.holds(1).await;
    let failed = a.asks(b.id, &Panic).await.unwrap_err();
    assert!(matches!(failed, AskError::Refused(RpcRefusal::Failed(_))), "{failed}");
    b.counted(Reason::Panicked, 1).await;
    gate.open.notify_waiters();
    assert_eq!(patiently("the reply", other).await.unwrap(), Ok(7));
    a.reaches(&mut b).await;
}

#[tokio::test]
async fn bodies_that_are_no_request_are_malformed() {
    /// The method number of `Echo`, with other bytes.
    #[derive(Debug, Serialize, Deserialize)]
    struct Garbage([u8; 12]);
    impl Request for Garbage {
        const METHOD: u16 = 1;
        const NAME: &'static str = "garbage";
        type Reply = Vec<u8>;
    }
    let Pair { a, b, .. } = pair(|_| {}).await;
    let refused = a.asks(b.id, &Garbage([0xff; 12])).await.unwrap_err();
    assert!(
        matches!(&refused, AskError::Refused(RpcRefusal::Malformed(why)) if why.contains("echo")),
        "{refused}"
    );
    assert_eq!(b.transport.counters().of(Reason::RequestMalformed), 1);
}

#[test]
#[should_panic(expected = "is taken")]
fn a_number_is_given_to_one_request_only() {
    let _ = Router::new()
        .on(|_, echo: Echo, _| async move { Ok(echo.bytes) })
        .on(|_, echo: OldEcho, _| async move { Ok(echo.bytes) });
}
