//! Packets arrive or are counted, and a slow receiver does not delay other members.

use super::*;

/// Sends until one arrives: a datagram may be lost even on loopback, when buffers are full.
async fn datagram_arrives(a: &Side, b: &mut Side, length: usize) {
    let bytes = Bytes::from(vec![7; length]);
    let mut tries = tokio::time::interval(Duration::from_millis(200));
    let packet = patiently("a datagram", async {
        loop {
            tries.tick().await;
            a.transport.send(b.id, bytes.clone(), Delivery::Datagram);
            let wait = tokio::time::timeout(Duration::from_secs(1), b.packet());
            if let Ok(packet) = wait.await {
                return packet;
            }
        }
    });
    assert_eq!(packet.await, (a.id, bytes));
}

#[tokio::test]
async fn packets_go_as_datagrams_and_long_ones_as_streams() {
    let authority = Authority::new();
    let (mut a, mut b) = (cell(&authority, 1), cell(&authority, 2));
    a.link_to(&mut b).await;
    let streams = |side: &Side, to: MemberId| {
        let link = side.transport.inner.link(to).unwrap();
        link.connection.stats().frame_tx.stream
    };
    let before = streams(&a, b.id);
    datagram_arrives(&a, &mut b, 1_150).await;
    datagram_arrives(&a, &mut b, 0).await;
    assert_eq!(streams(&a, b.id), before, "neither needed a stream");
    for (length, delivery) in [
        (1_151, Delivery::Datagram),
        (0, Delivery::Stream),
        (10, Delivery::Stream),
        (MESSAGE_LIMIT, Delivery::Datagram),
    ] {
        let bytes = Bytes::from(vec![9; length]);
        b.transport.send(a.id, bytes.clone(), delivery);
        assert!(a.packet().await == (b.id, bytes), "{length} bytes by {delivery:?}");
    }
    b.transport.send(a.id, Bytes::from(vec![0; MESSAGE_LIMIT + 1]), Delivery::Datagram);
    assert_eq!(b.transport.counters().of(Reason::Oversized), 1);
    b.transport.send(member(7), Bytes::new(), Delivery::Datagram);
    assert_eq!(b.transport.counters().of(Reason::NoLink), 1);
}

#[tokio::test]
async fn a_slow_owner_loses_packets_and_no_link_changes() {
    let authority = Authority::new();
    let mut slow = Build { capacity: 1, ..Build::new(&authority, 1) }.open();
    let (mut b, mut c) = (cell(&authority, 2), cell(&authority, 3));
    for other in [&mut b, &mut c] {
        other.transport.dial(None, slow.address()).unwrap();
        other.link_up().await;
    }
    // The channel has space for one LinkUp; the other one waits. Packets of the reported member are
    // dropped.
    for _ in 0..8 {
        b.transport.send(slow.id, Bytes::from_static(b"lost"), Delivery::Stream);
        c.transport.send(slow.id, Bytes::from_static(b"lost"), Delivery::Stream);
    }
    slow.counted(Reason::PacketDropped, 1).await;
    b.transport.shutdown().await;
    until("one link less", || slow.transport.links().len() == 1).await;

    let (mut up, mut down) = (Vec::new(), Vec::new());
    while down.is_empty() || !up.contains(&c.id) {
        match slow.next().await {
            TransportEvent::LinkUp { peer, .. } => up.push(peer.identity.member),
            TransportEvent::LinkDown { member, .. } => down.push(member),
            // Packets of c may come after its LinkUp.
            TransportEvent::Packet { from, .. } => assert!(up.contains(&from), "{from} was not up"),
            other => panic!("{other:?}"),
        }
        if !up.contains(&b.id) && up.contains(&c.id) {
            break; // The link of b came up and went down unreported.
        }
    }
    assert!(down.iter().all(|member| *member == b.id && up.contains(member)), "{up:?} {down:?}");
}

#[tokio::test]
async fn a_peer_that_never_reads_holds_up_nobody_else() {
    let authority = Authority::new();
    let (mut a, mut b) = (cell(&authority, 1), cell(&authority, 2));
    a.link_to(&mut b).await;
    let deaf = raw(&authority, 3, &mut a).await;
    let big = Bytes::from(vec![1; MESSAGE_LIMIT]);
    for _ in 0..40 {
        a.transport.send(member(3), big.clone(), Delivery::Stream);
        a.transport.send(member(3), Bytes::from_static(b"x"), Delivery::Datagram);
        a.reaches(&mut b).await;
    }
    a.counted(Reason::SendReplaced, 20).await;
    assert!(deaf.connection.close_reason().is_none());
}

#[tokio::test]
async fn messages_that_could_not_be_sent_in_time_are_given_up() {
    let authority = Authority::new();
    let quick =
        |settings: &mut TransportSettings| settings.message_deadline = Duration::from_millis(200);
    let mut a = Build::new(&authority, 1).set(quick).open();
    let _deaf = raw(&authority, 3, &mut a).await;
    for _ in 0..3 {
        a.transport.send(member(3), Bytes::from(vec![1; MESSAGE_LIMIT / 2]), Delivery::Stream);
    }
    a.counted(Reason::SendFailed, 2).await;
}

#[tokio::test]
async fn bytes_of_all_links_together_are_bounded_and_given_back() {
    let authority = Authority::new();
    let little = |settings: &mut TransportSettings| settings.inbound_bytes = 100 << 10;
    let mut a = Build::new(&authority, 1).set(little).open();
    let mut b = cell(&authority, 2);
    b.link_to(&mut a).await;
    b.transport.send(a.id, Bytes::from(vec![0; 200 << 10]), Delivery::Stream);
    a.counted(Reason::OverBudget, 1).await;
    let most = Bytes::from(vec![0; 90 << 10]);
    b.transport.send(a.id, most.clone(), Delivery::Stream);
    let (_, held) = a.packet().await;
    b.transport.send(a.id, most.clone(), Delivery::Stream);
    a.counted(Reason::OverBudget, 2).await;
    drop(held);
    b.transport.send(a.id, most.clone(), Delivery::Stream);
    assert_eq!(a.packet().await.1, most);
}
