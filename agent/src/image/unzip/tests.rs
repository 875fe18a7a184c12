//! Hostile zip archives, made by hand: each is refused by name or does no harm.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use super::super::dir_handle::ResolveMode;
use super::super::testing::Scene;
use super::super::unpack::Order;
use crate::image::extract::Purpose;

/// One entry, with all that can be lied about.
#[derive(Clone)]
struct Zipped {
    name: Vec<u8>,
    local_name: Vec<u8>,
    packed: Vec<u8>,
    bytes: u32,
    local_bytes: u32,
    crc: u32,
    method: u16,
    flags: u16,
    mode: u32,
    offset: Option<u32>,
    extra: Vec<u8>,
}

fn stored(name: &str, data: &[u8]) -> Zipped {
    Zipped {
        name: name.into(),
        local_name: name.into(),
        packed: data.to_vec(),
        bytes: u32::try_from(data.len()).unwrap(),
        local_bytes: u32::try_from(data.len()).unwrap(),
        crc: crc32fast::hash(data),
        method: 0,
        flags: 0,
        mode: 0o100_644,
        offset: None,
        extra: Vec::new(),
    }
}

fn deflated(name: &str, data: &[u8]) -> Zipped {
    let mut packed = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(data).unwrap();
    Zipped { packed: packed.finish().unwrap(), method: 8, ..stored(name, data) }
}

fn zip(entries: &[Zipped]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let offset = u32::try_from(out.len()).unwrap();
        let packed = u32::try_from(entry.packed.len()).unwrap().to_le_bytes();
        let numbers = [entry.flags.to_le_bytes(), entry.method.to_le_bytes(), [0, 0], [0x21, 0x50]];
        let length = |it: &[u8]| u16::try_from(it.len()).unwrap().to_le_bytes();
        out.extend(b"PK\x03\x04\x14\0");
        out.extend(numbers.concat());
        out.extend([entry.crc.to_le_bytes(), packed, entry.local_bytes.to_le_bytes()].concat());
        out.extend([length(&entry.local_name), [0, 0]].concat());
        out.extend(&entry.local_name);
        out.extend(&entry.packed);
        directory.extend(b"PK\x01\x02\x14\x03\x14\0");
        directory.extend(numbers.concat());
        directory.extend([entry.crc.to_le_bytes(), packed, entry.bytes.to_le_bytes()].concat());
        directory
            .extend([length(&entry.name), length(&entry.extra), [0, 0], [0, 0], [0, 0]].concat());
        directory.extend((entry.mode << 16).to_le_bytes());
        directory.extend(entry.offset.unwrap_or(offset).to_le_bytes());
        directory.extend([&entry.name[..], &entry.extra[..]].concat());
    }
    let (start, size) = (out.len(), directory.len());
    out.extend(directory);
    let count = u16::try_from(entries.len()).unwrap().to_le_bytes();
    let number = |it: usize| u32::try_from(it).unwrap().to_le_bytes();
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([count, count].concat());
    out.extend([number(size), number(start)].concat());
    out.extend([0, 0]);
    out
}

#[track_caller]
fn refused(bytes: &[u8], reason: &str) {
    refused_with(bytes, reason, |_| {});
}

#[track_caller]
fn refused_with(bytes: &[u8], reason: &str, change: impl Fn(&mut Order<'_>)) {
    for walk in [ResolveMode::Kernel, ResolveMode::Steps] {
        let scene = Scene::new(walk);
        let change = |order: &mut Order<'_>| {
            order.format = super::super::unpack::Format::Zip;
            change(order);
        };
        let error = scene.unpack(bytes, change).unwrap_err().to_string();
        assert!(error.contains(reason), "{error:?} instead of {reason:?}");
    }
}

#[test]
fn an_honest_zip_is_unpacked() {
    let text = b"text ".repeat(1000);
    let mut time = b"UT\x05\0\x01".to_vec();
    time.extend(1_234_567_u32.to_le_bytes());
    let entries = [
        deflated("d/text", &text),
        Zipped { mode: 0o040_755, ..stored("d/", b"") },
        Zipped { mode: 0o104_755, extra: time, ..stored("run", b"#!") },
        Zipped { mode: 0o120_777, ..stored("link", b"d/text") },
        Zipped { flags: 8, local_bytes: 0, ..deflated("streamed", b"later") },
        stored("caf\u{e9}", b""),
    ];
    let scene = Scene::new(ResolveMode::Kernel);
    let done = scene.unpack(&zip(&entries), |_| {}).unwrap();
    assert_eq!(done.read.entries, 6);
    assert_eq!(fs::read(scene.target().join("d/text")).unwrap(), text);
    let run = fs::metadata(scene.target().join("run")).unwrap();
    assert_eq!(run.permissions().mode() & 0o7777, 0o755, "setuid is dropped");
    assert_eq!(std::os::unix::fs::MetadataExt::mtime(&run), 1_234_567);
    assert_eq!(fs::read_to_string(scene.target().join("link")).unwrap().len(), 5000);
    assert!(Scene::new(ResolveMode::Steps).unpack(&zip(&[]), |_| {}).is_ok());
}

#[test]
fn paths_links_and_devices_are_refused_as_in_tar() {
    refused(&zip(&[stored("../x", b"")]), "the path has a `..`");
    refused(&zip(&[stored("a/../../x", b"")]), "the path has a `..`");
    refused(&zip(&[stored("/x", b"")]), "the path is absolute");
    refused(&zip(&[stored("a\0b", b"")]), "NUL");
    let link = |name, to: &[u8]| Zipped { mode: 0o120_777, ..stored(name, to) };
    refused(&zip(&[link("d", b"../outside"), stored("d/canary", b"dead")]), "not a folder");
    refused(&zip(&[link("d", b"")]), "without a usable target");
    refused(&zip(&[link("d", b"a\0b")]), "without a usable target");
    for mode in [0o020_644, 0o060_644, 0o010_644, 0o140_644] {
        let special = [Zipped { mode, ..stored("x", b"") }, stored("y", b"")];
        refused(&zip(&special), "devices, pipes and sockets");
        let scene = Scene::new(ResolveMode::Kernel);
        let done = scene.unpack(&zip(&special), |it| it.purpose = Purpose::RootFileSystem).unwrap();
        assert_eq!((done.left_out, scene.inside().len()), (1, 1));
    }
}

#[test]
fn a_path_that_occurs_twice_is_refused() {
    refused(&zip(&[stored("a", b"1"), stored("a", b"2")]), "occurs twice");
    refused(&zip(&[stored("a", b"1"), stored("./a", b"2")]), "occurs twice");
    refused(&zip(&[stored("a/b", b"1"), stored("a", b"2")]), "occurs twice");
    refused(&zip(&[stored("a", b"1"), stored("a/", b"")]), "occurs twice");
}

#[test]
fn lies_about_sizes_names_and_sums_are_refused() {
    let data = b"some bytes".repeat(20);
    let good = deflated("a", &data);
    let with = |change: fn(&mut Zipped)| {
        let mut entry = good.clone();
        change(&mut entry);
        zip(&[stored("first", b"1"), entry])
    };
    refused(&with(|it| (it.bytes, it.local_bytes) = (199, 199)), "announces 199 bytes and has");
    refused(&with(|it| (it.bytes, it.local_bytes) = (201, 201)), "announces 201 bytes and has 200");
    refused(&with(|it| it.local_bytes = 7), "differ in size");
    refused(&with(|it| it.crc ^= 1), "checksum is wrong");
    refused(&with(|it| it.local_name = b"b".to_vec()), "differ in name");
    refused(&with(|it| it.flags = 1), "encrypted");
    refused(&with(|it| it.method = 14), "method 14");
    refused(&with(|it| it.offset = Some(3)), "no local header");
    refused(&with(|it| it.offset = Some(900_000)), "cut short");
    refused(&with(|it| it.bytes = u32::MAX), "bad extra field");
    refused(&with(|it| it.extra = vec![1, 0, 99, 0]), "bad extra field");
    refused(&with(|it| it.packed.truncate(3)), "cannot read archive");
}

#[test]
fn entries_that_share_bytes_are_refused() {
    let one = stored("a", b"kernel");
    let mut twice = vec![one.clone(), Zipped { offset: Some(0), ..one.clone() }];
    twice[1].name = b"b".to_vec();
    refused(&zip(&twice), "differ in name");
    // The second begins inside of the first one's data.
    let inner = zip(&[stored("b", b"x")]);
    let inner = &inner[..31 + 1];
    let outer = stored("a", inner);
    let nested = Zipped { offset: Some(31), packed: b"x".to_vec(), ..stored("b", b"x") };
    refused(&zip(&[outer, nested]), "overlap");
}

#[test]
fn damaged_directories_are_refused() {
    let whole = zip(&[stored("a", b"1"), stored("b", b"2")]);
    refused(&whole[..whole.len() - 1], "no end record");
    refused(&[&whole[..], b"trailing"].concat(), "no end record");
    let end = whole.len() - 22;
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = whole.clone();
        changed[end + at..end + at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    refused(&with(8, &[3, 0, 3, 0]), "cut short");
    refused(&with(8, &[1, 0]), "several volumes");
    refused(&with(4, &[1, 0]), "several volumes");
    refused(&with(12, &[255, 255, 255, 127]), "no central directory");
    refused(&with(16, &[0, 0, 0, 0]), "no directory entry");
    refused(&with(16, &[255; 4]), "no zip64 locator");
    refused(b"PK\x05\x06", "no end record");
    refused(b"", "no end record");
}

#[test]
fn limits_hold_for_zip_too() {
    let zeroes = zip(&[deflated("zeroes", &vec![0; 30 << 20])]);
    refused(&zeroes, "limit ratio: at most 100");
    refused_with(&zeroes, "limit total_bytes: at most 1000", |it| it.limits.total_bytes = 1000);
    let two = zip(&[stored("a", b""), stored("b", b"")]);
    refused_with(&two, "limit entries: at most 1, given 2", |it| it.limits.entries = 1);
    let link = zip(&[Zipped { mode: 0o120_777, ..stored("l", &[b'x'; 2000]) }]);
    refused(&link, "limit link_bytes: at most 1024, given 2000");
}
