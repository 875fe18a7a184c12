//! Enrolment of machines that are not members yet: one short request, one short reply.

use std::sync::atomic::AtomicUsize;

use tokio::sync::Notify;

use super::*;

fn enrolling(authority: &Authority, enrolment: Option<Enrolment>) -> Side {
    Build::new(authority, 1).set(|settings| settings.enrolment = enrolment).open()
}

fn echo() -> Option<Enrolment> {
    Some(Arc::new(|question, from| {
        assert!(from.ip().is_loopback());
        Box::pin(async move { [b"re: ", question.as_slice()].concat() })
    }))
}

async fn ask(authority: &Authority, to: &Side, question: &[u8]) -> Result<Vec<u8>, EnrolCallError> {
    enrol(to.address(), authority.stranger(), question.to_vec(), PATIENCE).await
}

#[tokio::test]
async fn a_stranger_asks_and_is_answered() {
    let authority = Authority::new();
    let side = enrolling(&authority, echo());
    assert_eq!(ask(&authority, &side, b"let me in").await.unwrap(), b"re: let me in");
    let long = vec![7; ENROL_LIMIT - 4];
    assert_eq!(ask(&authority, &side, &long).await.unwrap().len(), ENROL_LIMIT);
    assert!(side.transport.links().is_empty());
    assert_eq!(side.transport.counters().of(Reason::EnrolRefused), 0);
}

#[tokio::test]
async fn without_a_callback_strangers_are_refused() {
    let authority = Authority::new();
    let side = enrolling(&authority, None);
    let error = ask(&authority, &side, b"x").await.unwrap_err().to_string();
    assert!(error.contains("nobody can enrol here"), "{error}");
    side.counted(Reason::EnrolRefused, 1).await;
}

#[tokio::test]
async fn a_server_of_another_cluster_is_not_asked() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let side = enrolling(&foreign, Some(Arc::new(|_, _| panic!("it was asked"))));
    let error = ask(&authority, &side, b"my token").await.unwrap_err();
    assert!(matches!(error, EnrolCallError::Failed { .. }), "{error}");
    side.counted(Reason::HandshakeFailed, 1).await;
}

#[tokio::test]
async fn long_questions_and_long_answers_are_refused() {
    let authority = Authority::new();
    let side = enrolling(&authority, echo());
    let error = ask(&authority, &side, &vec![0; ENROL_LIMIT + 1]).await.unwrap_err();
    assert!(matches!(error, EnrolCallError::TooLarge(_)), "{error}");
    let error = ask(&authority, &side, &vec![0; ENROL_LIMIT]).await.unwrap_err();
    assert!(error.to_string().contains("the answer is too long"), "{error}");

    let tls = authority.stranger();
    let raw = raw_with(tls, &[super::super::enrolment::PROTOCOL], side.address()).await.unwrap();
    let (mut send, _recv) = raw.connection.open_bi().await.unwrap();
    let endless = async { while send.write_all(&[0; 1024]).await.is_ok() {} };
    patiently("the refusal", endless).await;
    side.counted(Reason::EnrolRefused, 2).await;
}

#[tokio::test]
async fn who_says_nothing_and_who_is_not_answered_is_closed_in_time() {
    let authority = Authority::new();
    let never: Enrolment = Arc::new(|_, _| Box::pin(std::future::pending()));
    let side = Build::new(&authority, 1).set(|settings| {
        settings.enrolment = Some(never);
        settings.enrol_deadline = Duration::from_millis(300);
    });
    let side = side.open();
    let silent =
        raw_with(authority.stranger(), &[super::super::enrolment::PROTOCOL], side.address())
            .await
            .unwrap();
    patiently("its end", silent.connection.closed()).await;
    let error = ask(&authority, &side, b"x").await.unwrap_err().to_string();
    assert!(error.contains("took too long"), "{error}");
    side.counted(Reason::EnrolRefused, 2).await;
}

#[tokio::test]
async fn only_so_many_are_answered_at_once() {
    let authority = Authority::new();
    let (gate, inside) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (held, counted) = (gate.clone(), inside.clone());
    let gated: Enrolment = Arc::new(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        let held = held.clone();
        Box::pin(async move {
            held.notified().await;
            b"yes".to_vec()
        })
    });
    let side = enrolling(&authority, Some(gated));
    let mut rpc = tokio::task::JoinSet::new();
    for _ in 0..super::super::enrolment::AT_ONCE {
        rpc.spawn(enrol(side.address(), authority.stranger(), b"x".to_vec(), PATIENCE));
    }
    until("all inside", || inside.load(Ordering::SeqCst) == super::super::enrolment::AT_ONCE).await;
    let error = ask(&authority, &side, b"x").await.unwrap_err().to_string();
    assert!(error.contains("too many"), "{error}");
    gate.notify_waiters();
    while let Some(answer) = patiently("an answer", rpc.join_next()).await {
        assert_eq!(answer.unwrap().unwrap(), b"yes");
    }
    gate.notify_one();
    assert_eq!(ask(&authority, &side, b"x").await.unwrap(), b"yes");
}
