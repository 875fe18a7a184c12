//! Tests of tar headers alone; whole archives are in `unpack/tests.rs`.

use proptest::prelude::*;

use super::super::testing::Tar;
use super::*;

#[test]
fn numbers_are_octal_or_base_256() {
    for (field, expected) in [
        (&b"0000644\0"[..], Ok(0o644)),
        (b"   644 \0", Ok(0o644)),
        (b"\0\0\0\0", Ok(0)),
        (b"        ", Ok(0)),
        (b"77777777777", Ok(0o77_777_777_777)),
        (b"\x80\0\0\x01\0", Ok(256)),
        (b"\xff\xff\xff\xff", Ok(-1)),
        (b"\xff\xff\xff\x00", Ok(-256)),
        (b"\x80\x7f\xff\xff\xff\xff\xff\xff\xff", Ok(i64::MAX)),
        (b"\x80\x80\0\0\0\0\0\0\0", Err(BadHeader::Number("x"))),
        (b"8", Err(BadHeader::Number("x"))),
        (b"-1", Err(BadHeader::Number("x"))),
        (b"7\0x", Err(BadHeader::Number("x"))),
        (b"7 7", Err(BadHeader::Number("x"))),
    ] {
        assert_eq!(number(field, "x"), expected, "{}", field.escape_ascii());
    }
}

#[test]
fn pax_times_have_fractions_and_signs() {
    let at = |seconds, nanoseconds| Some(ModifiedAt { seconds, nanoseconds });
    assert_eq!(decimal_time(b"12"), at(12, 0));
    assert_eq!(decimal_time(b"12.000000001"), at(12, 1));
    assert_eq!(decimal_time(b"12.5"), at(12, 500_000_000));
    assert_eq!(decimal_time(b"12.1234567891"), at(12, 123_456_789));
    assert_eq!(decimal_time(b"-1.25"), at(-2, 750_000_000));
    assert_eq!(decimal_time(b"-3"), at(-3, 0));
    for bad in [&b""[..], b".5", b"x", b"1.x", b"1e9", b"--1", b"99999999999999999999"] {
        assert_eq!(decimal_time(bad), None, "{}", bad.escape_ascii());
    }
}

#[test]
fn the_end_and_damage_are_told_apart() {
    assert_eq!(parse_block(&[0; BLOCK_BYTES]), Ok(None));
    assert_eq!(parse_block(&[b'x'; BLOCK_BYTES]), Err(BadHeader::Checksum));
    let header = parse_block(&Tar::file("a", b"12").block).unwrap().unwrap();
    assert_eq!((header.kind, header.size, header.mode), (TarEntryKind::File, 2, 0o644));
    // Old tars added signed bytes.
    let mut signed = Tar::new(b'0', b"\xff", b"").block;
    let sum = i64::from_str_radix(std::str::from_utf8(&signed[148..154]).unwrap(), 8).unwrap();
    signed[148..154].copy_from_slice(format!("{:06o}", sum - 256).as_bytes());
    assert!(parse_block(&signed).is_ok());
}

#[test]
fn an_empty_pax_value_takes_back_what_was_said() {
    let mut extended = Extended::default();
    extended
        .add(TarEntryKind::Pax, &Tar::pax(b'x', &[("path", b"a"), ("uid", b"7")]).data)
        .unwrap();
    extended.add(TarEntryKind::Pax, &Tar::pax(b'x', &[("path", b""), ("gid", b"8")]).data).unwrap();
    let header = parse_block(&Tar::file("block", b"").block).unwrap().unwrap();
    let header = extended.apply(header).unwrap();
    assert_eq!((&header.path[..], header.uid, header.gid), (&b"block"[..], 7, 8));
}

proptest! {
    #[test]
    fn garbage_is_refused_or_read_and_never_panics(
        bytes in prop::collection::vec(any::<u8>(), BLOCK_BYTES),
        data in prop::collection::vec(any::<u8>(), 0..80)) {
        // With a right checksum, so that the fields are looked at.
        let mut tar = Tar::file("", b"");
        tar.block.copy_from_slice(&bytes);
        let tar = tar.set(0, b"");
        if let Ok(Some(header)) = parse_block(&tar.block) {
            let mut extended = Extended::default();
            for kind in [TarEntryKind::Pax, TarEntryKind::PaxGlobal, TarEntryKind::LongName, TarEntryKind::LongLink] {
                let _ = extended.add(kind, &data);
            }
            let _ = extended.apply(header);
        }
    }

    #[test]
    fn pax_records_never_panic(text in "[0-9]{0,3} ?[a-z]{0,6}=?[-0-9.a]{0,8}\n?") {
        let _ = Extended::default().add(TarEntryKind::Pax, text.as_bytes());
    }
}
