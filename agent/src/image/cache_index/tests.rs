//! Tests of the cache's books.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn evicted(found: &[Evicted]) -> Vec<&str> {
    found.iter().map(|it| it.key.as_str()).collect()
}

#[test]
fn the_least_recently_used_goes_first_and_held_ones_stay() {
    let mut ledger = CacheIndex::new(100, 1);
    for key in ["a", "b", "c"] {
        ledger.admit(key, 30).unwrap();
    }
    let a = ledger.hold("a").unwrap();
    let (_, gone) = ledger.admit("d", 40).unwrap();
    assert_eq!(evicted(&gone), ["b"]);
    let (_, gone) = ledger.admit("e", 60).unwrap();
    assert_eq!(evicted(&gone), ["c", "d"]);
    assert_eq!(ledger.used_bytes(), 90);
    let before = ledger.clone();
    let refusal = ledger.admit("f", 71).unwrap_err();
    assert_eq!(refusal, NoRoom::InUse { limit: 100, held: 30, given: 71 });
    assert_eq!(ledger.admit("f", 101), Err(NoRoom::TooLarge { limit: 100, given: 101 }));
    assert_eq!(ledger.admit("f", u64::MAX), Err(NoRoom::TooLarge { limit: 100, given: u64::MAX }));
    assert_eq!(ledger, before, "a refusal changes nothing");
    assert_eq!(ledger.release(a), None);
    assert_eq!(evicted(&ledger.admit("f", 71).unwrap().1), ["a", "e"]);
}

#[test]
fn a_new_file_replaces_the_old_one_of_its_key() {
    let mut ledger = CacheIndex::new(100, 1);
    let (first, _) = ledger.admit("a", 60).unwrap();
    let (second, gone) = ledger.admit("a", 60).unwrap();
    assert_eq!(gone, [Evicted { id: first, key: "a".into(), was_current: true }]);
    ledger.hold("a").unwrap();
    let (third, gone) = ledger.admit("a", 40).unwrap();
    assert!(gone.is_empty(), "somebody reads it");
    assert_eq!((ledger.current("a"), ledger.used_bytes()), (Some(third), 100));
    let gone = ledger.release(second).unwrap();
    assert_eq!((gone.id, gone.was_current, ledger.used_bytes()), (second, false, 40));
}

#[test]
fn what_is_forgotten_is_not_found_again() {
    let mut ledger = CacheIndex::new(100, 1);
    ledger.found("a", 7, 10);
    ledger.found("b", 3, 10);
    assert_eq!(ledger.next_id(), 8);
    let held = ledger.hold("a").unwrap();
    assert_eq!((ledger.forget("a"), ledger.current("a")), (None, None));
    assert_eq!(ledger.release(held).map(|it| it.id), Some(7));
    assert_eq!(ledger.forget("b").map(|it| it.id), Some(3));
    assert_eq!((ledger.forget("b"), ledger.used_bytes()), (None, 0));
}

#[test]
fn a_lower_limit_is_reached_at_the_start() {
    let mut ledger = CacheIndex::new(25, 1);
    for (key, id) in [("old", 9), ("mid", 2), ("new", 5)] {
        ledger.found(key, id, 10);
    }
    assert_eq!(evicted(&ledger.trim()), ["old"]);
    assert!(ledger.trim().is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Admit(u8, u64),
    Hold(u8),
    Release(usize),
    Forget(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..6_u8, 0..60_u64).prop_map(|(key, bytes)| Step::Admit(key, bytes)),
        (0..6_u8).prop_map(Step::Hold),
        any::<usize>().prop_map(Step::Release),
        (0..6_u8).prop_map(Step::Forget),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    #[test]
    fn the_books_balance_and_nothing_held_is_evicted(steps in steps()) {
        let mut ledger = CacheIndex::new(100, 1);
        let mut held: Vec<BlobId> = Vec::new();
        let mut disk: BTreeMap<BlobId, u64> = BTreeMap::new();
        for step in steps {
            let before = ledger.clone();
            let gone = match step {
                Step::Admit(key, bytes) => match ledger.admit(&key.to_string(), bytes) {
                    Ok((id, gone)) => {
                        prop_assert!(disk.insert(id, bytes).is_none(), "a number twice");
                        gone
                    }
                    Err(_) => {
                        prop_assert_eq!(&ledger, &before);
                        let free: u64 = 100 - disk.iter().filter(|(id, _)| held.contains(id)).map(|(_, it)| it).sum::<u64>();
                        prop_assert!(bytes > free, "refused although {} fit into {}", bytes, free);
                        Vec::new()
                    }
                },
                Step::Hold(key) => {
                    held.extend(ledger.hold(&key.to_string()));
                    Vec::new()
                }
                Step::Release(at) if !held.is_empty() => {
                    let id = held.swap_remove(at % held.len());
                    ledger.release(id).into_iter().collect()
                }
                Step::Release(_) => Vec::new(),
                Step::Forget(key) => ledger.forget(&key.to_string()).into_iter().collect(),
            };
            for evicted in gone {
                prop_assert!(!held.contains(&evicted.id), "evicted while held");
                prop_assert!(disk.remove(&evicted.id).is_some(), "evicted twice");
            }
            prop_assert_eq!(ledger.used_bytes(), disk.values().sum::<u64>());
            prop_assert!(ledger.used_bytes() <= 100);
            let current: BTreeSet<BlobId> = ledger.current.values().copied().collect();
            prop_assert!(current.iter().all(|id| disk.contains_key(id)));
            prop_assert!(disk.keys().all(|id| current.contains(id) || held.contains(id)), "a leak");
        }
    }
}
