//! The hub of events: order, memory, places to go on from.

use std::sync::Arc;

use volvox_protocol::event::{Crash, Event};
use volvox_protocol::time::Timestamp;

use super::*;

const SMALL: HubLimits = HubLimits { events: 4, bytes: 1 << 20 };

/// An event that tells of the crash of this index.
fn event(index: u32) -> Event {
    let key = serde_json::from_value(serde_json::json!({
        "process_guid": "p", "index": index, "domain": "d", "definition_id": null,
    }));
    let instance = serde_json::from_value(serde_json::json!({
        "instance_guid": "i", "cell_id": "c",
    }));
    Event::Crashed(Crash {
        key: key.unwrap(),
        instance: instance.unwrap(),
        crash_count: 1,
        crash_reason: "exit 1".into(),
        since: Timestamp::from_nanos(1),
    })
}

fn numbers(entries: &[Arc<NumberedEvent>]) -> Vec<u64> {
    entries.iter().map(|entry| entry.number).collect()
}

#[tokio::test]
async fn events_come_in_order_and_all_of_them() {
    let hub = Hub::new(7, HubLimits::default());
    let mut early = hub.subscribe();
    hub.publish(1, vec![event(0), event(1)]);
    let mut late = hub.subscribe();
    hub.publish(2, vec![event(2)]);
    assert_eq!(numbers(&early.next(2).await.unwrap()), [1, 2]);
    assert_eq!(numbers(&early.next(2).await.unwrap()), [3]);
    assert_eq!(numbers(&late.next(9).await.unwrap()), [3]);
    assert_eq!(late.at().to_string(), "0000000000000007-3");
}

#[tokio::test]
async fn an_event_names_the_call_that_caused_it() {
    let hub = Hub::new(7, HubLimits::default());
    let mut reader = hub.subscribe();
    let traces = vec![(0..1, "first".into()), (2..4, "second".into())];
    hub.tell_traced(1, (0..5).map(event).collect(), traces);
    let read = reader.next(9).await.unwrap();
    let named: Vec<&str> = read.iter().map(|it| it.trace.as_deref().unwrap_or("")).collect();
    assert_eq!(named, ["first", "", "second", "second", ""]);
    let text = |nth: usize| {
        String::from_utf8(hub.frame(reader.id_of(&read[nth]), &read[nth]).to_vec()).unwrap()
    };
    assert!(text(0).contains(r#""crash_reason":"exit 1""#), "{}", text(0));
    assert!(text(0).contains(r#""trace_id":"first"}"#), "{}", text(0));
    assert!(!text(1).contains("trace_id"), "{}", text(1));
}

#[tokio::test]
async fn a_waiting_reader_is_woken() {
    let hub = Hub::new(7, SMALL);
    let mut reader = hub.subscribe();
    let (read, ()) = tokio::join!(reader.next(9), async { hub.publish(1, vec![event(0)]) });
    assert_eq!(numbers(&read.unwrap()), [1]);
}

#[tokio::test]
async fn reading_goes_on_after_the_last_id() {
    let hub = Hub::new(7, SMALL);
    hub.publish(1, (0..3).map(event).collect());
    let mut reader = hub.resume("0000000000000007-1".parse().unwrap()).unwrap();
    assert_eq!(numbers(&reader.next(9).await.unwrap()), [2, 3]);
    for unknown in ["0000000000000007-4", "0000000000000008-1"] {
        assert_eq!(
            hub.resume(unknown.parse().unwrap()).unwrap_err(),
            SubscriptionEnd::Unknown,
            "{unknown}"
        );
    }
    hub.publish(2, (0..3).map(event).collect());
    assert_eq!(
        hub.resume("0000000000000007-1".parse().unwrap()).unwrap_err(),
        SubscriptionEnd::Unknown
    );
    assert!(hub.resume("0000000000000007-2".parse().unwrap()).is_ok(), "the oldest is 3");
    for text in ["", "7", "7-1", "000000000000000g-1", "0000000000000007--1", "é"] {
        assert!(text.parse::<EventId>().is_err(), "{text:?} was let through");
    }
}

#[tokio::test]
async fn who_is_too_slow_is_told_and_slows_nobody() {
    let hub = Hub::new(7, SMALL);
    let (mut slow, mut quick) = (hub.subscribe(), hub.subscribe());
    for commit in 1..=9 {
        hub.publish(commit, vec![event(0)]);
        assert_eq!(numbers(&quick.next(9).await.unwrap()), [commit]);
    }
    assert_eq!(slow.next(9).await.unwrap_err(), SubscriptionEnd::Lagged);
}

#[tokio::test]
async fn texts_are_made_once_and_counted() {
    let hub = Hub::new(7, HubLimits { events: 100, bytes: 4_000 });
    let mut reader = hub.subscribe();
    hub.publish(1, vec![event(0)]);
    let entry = reader.next(1).await.unwrap().remove(0);
    let text = hub.frame(reader.id_of(&entry), &entry);
    let expected =
        "id: 0000000000000007-1\nevent: actual_lrp_crashed\ndata: {\"process_guid\":\"p\"";
    assert!(text.starts_with(expected.as_bytes()), "{text:?}");
    assert!(text.ends_with(b"}\n\n"), "{text:?}");
    assert_eq!(hub.frame(reader.id_of(&entry), &entry).as_ptr(), text.as_ptr());
    // Each weighs some 768 bytes: the memory holds fewer events than it could by number.
    for commit in 2..=20 {
        hub.publish(commit, vec![event(0)]);
        for entry in reader.next(9).await.unwrap() {
            hub.frame(reader.id_of(&entry), &entry);
        }
    }
    let remembered = hub.ring().entries.len();
    assert!((2..10).contains(&remembered), "{remembered} events are remembered");
}

#[tokio::test]
async fn a_snapshot_and_what_follows_have_no_gap_and_no_overlap() {
    let hub = Hub::new(7, SMALL);
    hub.publish(1, vec![event(0), event(1)]);
    hub.publish(2, vec![event(2)]);
    hub.publish(3, vec![]);
    for (commit, expected) in [(0, vec![1, 2, 3]), (1, vec![3]), (2, vec![]), (3, vec![])] {
        let mut reader = hub.subscribe_after(commit).await.unwrap();
        let read = reader.read(9).unwrap();
        assert_eq!(numbers(&read), expected, "after commit {commit}");
    }
    // A commit that is shown but not told of yet: its events are in the snapshot.
    let (reader, ()) = tokio::join!(hub.subscribe_after(4), async {
        hub.publish(4, vec![event(3)]);
        hub.publish(5, vec![event(4)]);
    });
    assert_eq!(numbers(&reader.unwrap().next(9).await.unwrap()), [5]);
    // The events of commit 2 were forgotten when the sixth came.
    hub.publish(6, vec![event(5), event(6)]);
    assert_eq!(hub.subscribe_after(1).await.unwrap_err(), SubscriptionEnd::Lagged);
    assert!(hub.subscribe_after(3).await.is_ok());
}

#[tokio::test]
async fn a_board_that_was_read_anew_ends_all_and_begins_again() {
    let hub = Hub::new(7, SMALL);
    let mut reader = hub.subscribe();
    hub.publish(1, vec![event(0)]);
    hub.resync(8, 2);
    assert_eq!(reader.next(9).await.unwrap_err(), SubscriptionEnd::Resync);
    assert_eq!(
        hub.resume("0000000000000007-1".parse().unwrap()).unwrap_err(),
        SubscriptionEnd::Unknown
    );
    assert_eq!(hub.subscribe_after(1).await.unwrap_err(), SubscriptionEnd::Lagged);
    let mut reader = hub.subscribe_after(2).await.unwrap();
    hub.publish(3, vec![event(1)]);
    assert_eq!(numbers(&reader.next(9).await.unwrap()), [2]);
    hub.close();
    assert_eq!(reader.next(9).await.unwrap_err(), SubscriptionEnd::Closed);
}
