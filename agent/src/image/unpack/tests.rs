//! Hostile tar archives, made by hand: each is refused by name or does no harm, by both ways of
//! resolving paths. `Scene::unpack` asserts each time that nothing outside has changed.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::dir_handle::ResolveMode;
use super::super::testing::{Scene, Tar, archive, gzip};
use super::*;

const WALKS: [ResolveMode; 2] = [ResolveMode::Kernel, ResolveMode::Steps];

#[track_caller]
fn refused(entries: &[Tar], reason: &str) {
    refused_with(entries, reason, |_| {});
}

#[track_caller]
fn refused_with(entries: &[Tar], reason: &str, change: impl Fn(&mut Order<'_>)) {
    refused_bytes(&archive(entries), reason, change);
}

#[track_caller]
fn refused_bytes(bytes: &[u8], reason: &str, change: impl Fn(&mut Order<'_>)) {
    for walk in WALKS {
        for bytes in [bytes.to_vec(), gzip(bytes)] {
            let error = Scene::new(walk).unpack(&bytes, &change).unwrap_err().to_string();
            assert!(error.contains(reason), "{error:?} instead of {reason:?}, by {walk:?}");
        }
    }
}

/// Unpacks both ways and hands over the scene.
#[track_caller]
fn taken(entries: &[Tar], change: impl Fn(&mut Order<'_>), look: impl Fn(&Scene, Unpacked)) {
    for walk in WALKS {
        for bytes in [archive(entries), gzip(&archive(entries))] {
            let scene = Scene::new(walk);
            let done = scene.unpack(&bytes, &change).unwrap();
            look(&scene, done);
        }
    }
}

fn as_root(order: &mut Order<'_>) {
    order.purpose = Purpose::RootFileSystem;
}

fn read(scene: &Scene, path: &str) -> String {
    fs::read_to_string(scene.target().join(path)).unwrap()
}

#[test]
fn paths_that_leave_the_folder_are_refused() {
    let parent = "the path has a `..`";
    refused(&[Tar::file("../x", b"")], parent);
    refused(&[Tar::file("ok", b"1"), Tar::file("a/../../x", b"")], parent);
    refused(&[Tar::folder("a/..")], parent);
    refused(&[Tar::symlink("../x", "y")], parent);
    refused(&[Tar::file("x", b"").set(345, b"..")], parent);
    refused(&[Tar::pax(b'x', &[("path", b"../x")]), Tar::file("ok", b"")], parent);
    refused(&[Tar::new(b'L', b"././@LongLink", b"../../x\0"), Tar::file("ok", b"")], parent);
    refused(&[Tar::file("/etc/x", b"")], "the path is absolute");
    refused(&[Tar::pax(b'x', &[("path", b"/x")]), Tar::file("ok", b"")], "the path is absolute");
    refused(&[Tar::pax(b'x', &[("path", b"a\0b")]), Tar::file("ok", b"")], "NUL");
    refused(&[Tar::file("", b"")], "the path is empty");
}

#[test]
fn nothing_is_written_through_a_link() {
    let through = "goes through something that is not a folder";
    for target in ["../outside", "/", ".", "../outside/folder", "loop"] {
        refused(&[Tar::symlink("loop", target), Tar::file("loop/canary", b"dead")], through);
        refused(&[Tar::symlink("loop", target), Tar::folder("loop/new")], through);
        refused(&[Tar::symlink("loop", target), Tar::symlink("loop/new", "x")], through);
    }
    refused(
        &[Tar::symlink("b", "../outside"), Tar::symlink("a", "b"), Tar::file("a/canary", b"dead")],
        through,
    );
    refused(&[Tar::file("f", b""), Tar::file("f/x", b"")], through);
    // The link itself may be replaced: the file is a new one.
    let replaced = [Tar::symlink("l", "../outside/canary"), Tar::file("l", b"new")];
    taken(&replaced, |_| {}, |scene, _| assert_eq!(read(scene, "l"), "new"));
}

#[test]
fn a_folder_that_becomes_a_link_and_back_stays_inside() {
    let swap = [Tar::folder("d"), Tar::symlink("d", "../outside")];
    refused(&[&swap[..], &[Tar::file("d/canary", b"dead")]].concat(), "not a folder");
    taken(
        &[&swap[..], &[Tar::folder("d"), Tar::file("d/canary", b"mine")]].concat(),
        |_| {},
        |scene, _| assert_eq!(read(scene, "d/canary"), "mine"),
    );
    refused(&[Tar::file("d/x", b""), Tar::symlink("d", "../outside")], "not empty");
    refused(&[Tar::file("d/x", b""), Tar::file("d", b"")], "not empty");
    refused(&[Tar::file(".", b"")], "not empty");
    refused(&[Tar::symlink("./", "../outside")], "not empty");
    refused(&[Tar::file("a", b""), Tar::hard_link(".", "a")], "not empty");
}

#[test]
fn hard_links_lead_to_files_of_the_archive_only() {
    let bad = "is no file that this archive made";
    refused(&[Tar::hard_link("h", "missing")], bad);
    refused(&[Tar::hard_link("h", "../outside/canary")], "the path has a `..`");
    refused(&[Tar::hard_link("h", "/etc/passwd")], "the path is absolute");
    refused(&[Tar::symlink("l", "../outside/canary"), Tar::hard_link("h", "l")], bad);
    refused(&[Tar::symlink("d", "../outside"), Tar::hard_link("h", "d/canary")], bad);
    refused(&[Tar::folder("d"), Tar::hard_link("h", "d")], bad);
    refused(&[Tar::file("f", b""), Tar::hard_link("f", "f")], bad);
    // A file, whose folder then is a link: the path we made is no longer one.
    refused(
        &[
            Tar::file("d/canary", b""),
            Tar::hard_link("e", "d/canary"),
            Tar::symlink("d", "../outside"),
        ],
        "not empty",
    );
    taken(
        &[Tar::file("a", b"both"), Tar::hard_link("d/b", "a")],
        |_| {},
        |scene, _| {
            assert_eq!(read(scene, "d/b"), "both");
            let inode = |path| fs::metadata(scene.target().join(path)).unwrap().ino();
            assert_eq!(inode("a"), inode("d/b"));
        },
    );
}

#[test]
fn what_was_in_the_folder_before_is_no_way_out() {
    for walk in WALKS {
        let scene = Scene::new(walk);
        symlink("../outside", scene.target().join("link")).unwrap();
        fs::hard_link(scene.outside().join("canary"), scene.target().join("twin")).unwrap();
        fs::create_dir(scene.target().join("old")).unwrap();
        fs::set_permissions(scene.target().join("old"), fs::Permissions::from_mode(0o711)).unwrap();
        let error = scene.unpack(&archive(&[Tar::file("link/canary", b"dead")]), |_| {});
        assert!(error.unwrap_err().to_string().contains("not a folder"));
        let error = scene.unpack(&archive(&[Tar::hard_link("h", "twin")]), |_| {});
        assert!(error.unwrap_err().to_string().contains("no file that this archive made"));
        // Replaced, not written through; the folder that was there keeps its mode.
        let good = [Tar::file("twin", b"mine"), Tar::folder("old").mode(0o777)];
        scene.unpack(&archive(&good), |_| {}).unwrap();
        assert_eq!(read(&scene, "twin"), "mine");
        assert!(scene.inside()[Path::new("old")].starts_with("folder 711"));
    }
}

#[test]
fn devices_are_left_out_of_roots_and_refused_in_downloads() {
    let sda = |kind| Tar::new(kind, b"dev/x", b"").set(329, b"0000010").set(337, b"0000001");
    for kind in [b'3', b'4', b'6'] {
        refused(&[sda(kind)], "devices, pipes and sockets are not taken");
        taken(&[sda(kind), Tar::file("a", b"")], as_root, |scene, done| {
            assert_eq!((done.left_out, scene.inside().len()), (1, 1));
        });
    }
    let zero = || Tar::new(b'3', b"gone", b"").set(329, b"0000000").set(337, b"0000000");
    refused(&[zero()], "whiteout");
    refused_with(&[zero()], "whiteout", as_root);
    for name in [".wh.x", "d/.wh..wh..opq", ".wh.d/x"] {
        refused_with(&[Tar::file(name, b"")], "whiteout", as_root);
        taken(&[Tar::file(name, b"")], |_| {}, |scene, _| assert_eq!(read(scene, name), ""));
    }
}

#[test]
fn modes_and_times_are_kept_and_setuid_only_in_roots() {
    let entries = [
        Tar::folder("d").mode(0o2555),
        Tar::file("d/x", b"1").mode(0o4755),
        Tar::pax(b'x', &[("mtime", b"1234.5")]),
        Tar::file("y", b"").mode(0o600),
        Tar::folder("./").mode(0o700),
    ];
    let mode = |scene: &Scene, path: &str| {
        fs::metadata(scene.target().join(path)).unwrap().permissions().mode() & 0o7777
    };
    taken(
        &entries,
        |_| {},
        |scene, _| {
            assert_eq!(
                (mode(scene, "d"), mode(scene, "d/x"), mode(scene, "y")),
                (0o555, 0o755, 0o600)
            );
            assert_ne!(mode(scene, "."), 0o700, "the folder was there before");
            let at = |path| fs::metadata(scene.target().join(path)).unwrap();
            assert_eq!((at("d/x").mtime(), at("d").mtime(), at("y").mtime()), (1000, 1000, 1234));
            assert_eq!(at("y").mtime_nsec(), 500_000_000);
        },
    );
    taken(&entries, as_root, |scene, _| {
        assert_eq!((mode(scene, "d"), mode(scene, "d/x")), (0o2555, 0o4755));
        assert_eq!(mode(scene, "."), 0o700);
    });
}

#[test]
fn names_are_bytes_and_long_ones_are_read() {
    let long = "l/".repeat(60) + "name";
    let latin = b"caf\xe9";
    let entries = [
        Tar::new(b'0', latin, b"1"),
        Tar::new(b'L', b"././@LongLink", format!("{long}\0").as_bytes()),
        Tar::file("short", b"gnu"),
        Tar::pax(b'g', &[("comment", b"0123")]),
        Tar::pax(b'x', &[("path", b"pax/name"), ("size", b"3"), ("LIBARCHIVE.x", b"y")]),
        Tar::file("other", b"pax"),
        Tar::file("name", b"ustar").set(345, b"prefix/of/it"),
        Tar::new(b'\0', b"old/", b""),
        Tar::new(b'K', b"././@LongLink", format!("{long}\0").as_bytes()),
        Tar::symlink("s", "x"),
    ];
    taken(
        &entries,
        |_| {},
        |scene, _| {
            assert!(scene.target().join(std::ffi::OsStr::from_bytes(latin)).is_file());
            assert_eq!(read(scene, &long), "gnu");
            assert_eq!(
                (read(scene, "pax/name"), read(scene, "prefix/of/it/name")),
                ("pax".into(), "ustar".into())
            );
            assert!(scene.target().join("old").is_dir());
            assert_eq!(fs::read_link(scene.target().join("s")).unwrap(), Path::new(&long));
        },
    );
}

#[test]
fn the_later_of_two_entries_wins() {
    let entries = [Tar::file("a", b"old"), Tar::symlink("a", "x"), Tar::file("a", b"new")];
    taken(&entries, |_| {}, |scene, _| assert_eq!(read(scene, "a"), "new"));
}

#[test]
fn headers_that_readers_disagree_about_are_refused() {
    let base256 = |first: u8, last: u8| {
        let mut field = [first; 12];
        field[1..].fill(if first == 0xff { 0xff } else { 0 });
        field[11] = last;
        field
    };
    refused(&[Tar::file("a", b"").set(124, &base256(0xff, 0xfe))], "negative size");
    refused(&[Tar::pax(b'x', &[("size", b"-1")]), Tar::file("a", b"")], "negative size");
    let mut huge = base256(0x80, 0);
    huge[4] = 0x7f;
    refused(&[Tar::file("a", b"").set(124, &huge)], "limit total_bytes");
    huge[3] = 1;
    refused(&[Tar::file("a", b"").set(124, &huge)], "field size");
    refused(&[Tar::file("a", b"").set(124, b"12x")], "field size");
    refused(&[Tar::file("a", b"").set(108, b"9999999")], "field uid");
    refused(&[Tar::new(b'S', b"a", b"")], "sparse");
    refused(&[Tar::pax(b'x', &[("GNU.sparse.major", b"1")]), Tar::file("a", b"")], "sparse");
    refused(&[Tar::new(b'M', b"a", b"")], "kind 0x4d");
    refused(&[Tar::new(b'\xff', b"a", b"")], "kind 0xff");
    for kind in *b"123456" {
        refused(&[Tar::new(kind, b"a", b"x").link("b")], "can have no data");
    }
    refused(&[Tar::pax(b'g', &[("path", b"x")]), Tar::file("a", b"")], "bad pax header: a global");
    refused(&[Tar::new(b'x', b"p", b"99 path=a\n"), Tar::file("a", b"")], "bad length");
    refused(&[Tar::new(b'x', b"p", b"5 a=b"), Tar::file("a", b"")], "no line end");
    refused(&[Tar::new(b'x', b"p", b"path=a\n"), Tar::file("a", b"")], "no length");
    refused(&[Tar::new(b'L', b"p", b"a\0/../b\0"), Tar::file("a", b"")], "bad GNU long name");
    refused(&[Tar::new(b'L', b"p", b"a\0")], "at the end of the archive");
    refused(&[Tar::symlink("a", "")], "without a usable target");
    refused(&[Tar::pax(b'x', &[("linkpath", b"a\0b")]), Tar::symlink("a", "x")], "usable target");
    let mut damaged = Tar::file("a", b"");
    damaged.block[0] ^= 1;
    refused(&[Tar::file("first", b"x"), damaged], "checksum");
}

#[test]
fn an_archive_that_is_cut_short_leaves_nothing() {
    let whole = archive(&[Tar::file("a", &[7; 2000]), Tar::folder("d"), Tar::file("d/b", b"2")]);
    let end = whole.len() - 1024;
    for length in [100, 512, 1000, 2560, end - 100, end] {
        refused_bytes(&whole[..length], "cut short", |_| {});
    }
    let packed = gzip(&whole);
    for walk in WALKS {
        let error = Scene::new(walk).unpack(&packed[..packed.len() - 4], |_| {}).unwrap_err();
        assert!(matches!(error, UnpackError::CutShort | UnpackError::Read(_)), "{error}");
        let mut flipped = packed.clone();
        let at = flipped.len() - 6;
        flipped[at] ^= 1;
        let error = Scene::new(walk).unpack(&flipped, |_| {}).unwrap_err();
        assert!(matches!(error, UnpackError::Read(_)), "gzip's own checksum: {error}");
    }
}

#[test]
fn each_limit_is_enforced_and_named() {
    let three = [Tar::file("a", b""), Tar::file("b", b""), Tar::file("c", b"")];
    refused_with(&three, "limit entries: at most 2, given 3", |it| it.limits.entries = 2);
    refused_with(&three, "limit all_path_bytes: at most 2, given 3", |it| {
        it.limits.all_path_bytes = 2
    });
    let big = [Tar::file("a", &[0; 10_000])];
    refused_with(&big, "limit total_bytes: at most 9000, given 10512", |it| {
        it.limits.total_bytes = 9000
    });
    refused_with(&[Tar::file("abc", b"")], "limit name_bytes: at most 2", |it| {
        it.limits.name_bytes = 2
    });
    refused_with(&[Tar::file("a/b", b"")], "limit path_bytes: at most 2", |it| {
        it.limits.path_bytes = 2
    });
    refused_with(&[Tar::file("a/b", b"")], "limit depth: at most 1", |it| it.limits.depth = 1);
    refused_with(&[Tar::symlink("a", "abc")], "limit link_bytes: at most 2", |it| {
        it.limits.link_bytes = 2
    });
    let pax = [Tar::pax(b'x', &[("comment", &[b'x'; 200])]), Tar::file("a", b"")];
    refused_with(&pax, "limit header_bytes: at most 100", |it| it.limits.header_bytes = 100);
    // Headers without entries count, too.
    let chain = vec![Tar::new(b'L', b"p", b"a\0"); 9];
    refused_with(&chain, "limit entries: at most 5", |it| it.limits.entries = 5);
}

#[test]
fn a_bomb_is_refused_by_its_ratio() {
    let bomb = gzip(&archive(&[Tar::file("zeroes", &vec![0; 30 << 20])]));
    for walk in WALKS {
        let error = Scene::new(walk).unpack(&bomb, |_| {}).unwrap_err().to_string();
        assert!(error.contains("limit ratio: at most 100"), "{error}");
        // Behind the end of the archive, too.
        let tail = [archive(&[Tar::file("a", b"")]), vec![0; 30 << 20]].concat();
        let error = Scene::new(walk).unpack(&gzip(&tail), |_| {}).unwrap_err().to_string();
        assert!(error.contains("limit ratio: at most 100"), "{error}");
    }
    let plain = archive(&[Tar::file("zeroes", &vec![0; 30 << 20])]);
    assert!(Scene::new(ResolveMode::Kernel).unpack(&plain, |_| {}).is_ok());
}

#[test]
fn progress_is_told_and_a_cancel_undoes_everything() {
    let entries: Vec<Tar> = (0..50).map(|n| Tar::file(&format!("d{n}/f"), &[1; 3000])).collect();
    let scene = Scene::new(ResolveMode::Kernel);
    let cancel = Cancel::new();
    let mut last = Progress::default();
    let mut progress = |now: Progress| {
        assert!(now.bytes >= last.bytes && now.entries >= last.entries);
        last = now;
        if now.entries == 20 {
            cancel.cancel();
        }
    };
    let file = super::super::testing::file_of(&archive(&entries));
    let into = DirHandle::open(&scene.target()).unwrap();
    let order = Scene::order(Purpose::Download, Format::Tar, &cancel, &mut progress);
    assert!(matches!(unpack(&file, &into, order), Err(UnpackError::Cancelled)));
    assert!(scene.inside().is_empty());
    assert_eq!(last.entries, 20);
}

#[test]
fn a_folder_swapped_by_somebody_else_leads_nowhere() {
    let entries: Vec<Tar> =
        (0..300).map(|n| Tar::file(&format!("d/e/{}", n % 7), b"dead")).collect();
    for walk in WALKS {
        let scene = Scene::new(walk);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (d, away) = (scene.target().join("d"), scene.target().join("away"));
                while !done.load(Ordering::Acquire) {
                    let _ = fs::rename(&d, &away);
                    let _ = symlink("../outside", &d);
                    let _ = fs::remove_file(&d);
                    let _ = fs::rename(&away, &d);
                }
            });
            for _ in 0..40 {
                let file = super::super::testing::file_of(&archive(&entries));
                let into = DirHandle::open_with(&scene.target(), walk).unwrap();
                let (cancel, progress) = (Cancel::new(), &mut |_| {});
                let _ = unpack(
                    &file,
                    &into,
                    Scene::order(Purpose::Download, Format::Tar, &cancel, progress),
                );
            }
            done.store(true, Ordering::Release);
        });
        scene.assert_outside_unharmed();
    }
}

#[test]
fn owners_are_fixed_or_shifted_into_a_range() {
    if !nix::unistd::geteuid().is_root() {
        crate::image::testing::skip("owners_are_fixed_or_shifted_into_a_range", "not root");
        return;
    }
    let entries = [Tar::file("d/f", b"").owner(5, 6), Tar::symlink("l", "x").owner(7, 8)];
    let owner = |scene: &Scene, path: &str| {
        let stat = fs::symlink_metadata(scene.target().join(path)).unwrap();
        (stat.uid(), stat.gid())
    };
    let fixed = |it: &mut Order<'_>| it.ownership = Ownership::Fixed { uid: 1234, gid: 4321 };
    taken(&entries, fixed, |scene, _| {
        for path in ["d", "d/f", "l"] {
            assert_eq!(owner(scene, path), (1234, 4321), "{path}");
        }
    });
    let shifted = |it: &mut Order<'_>| {
        it.purpose = Purpose::RootFileSystem;
        it.ownership = Ownership::Shifted { uid_offset: 100_000, gid_offset: 200_000, ids: 100 };
    };
    taken(&[&entries[..], &[Tar::file("s", b"").mode(0o4755)]].concat(), shifted, |scene, _| {
        assert_eq!(owner(scene, "d/f"), (100_005, 200_006));
        assert_eq!(owner(scene, "l"), (100_007, 200_008));
        assert_eq!(owner(scene, "d"), (100_000, 200_000));
        assert!(scene.inside()[Path::new("s")].starts_with("file 4755"), "chown takes setuid");
    });
    let beyond = [Tar::file("a", b"").owner(100, 0)];
    refused_with(&beyond, "limit ids: at most 99, given 100", shifted);
}
