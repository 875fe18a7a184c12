//! Tests of root file systems: which is meant, what is made, and what of the machine is not told.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::super::checksum::sha256_hex;
use super::super::testing::{Tar, archive};
use super::*;

fn rootfs_config(preloaded: &[(&str, &Path)], host: HostRoot) -> RootfsConfig {
    let detect =
        |(name, path): &(&str, &Path)| ((*name).to_owned(), Preloaded::detect(path).unwrap());
    RootfsConfig {
        preloaded: preloaded.iter().map(detect).collect::<BTreeMap<_, _>>(),
        host,
        ownership: Ownership::Process,
        limits: UnpackLimits::default(),
    }
}

#[test]
fn root_file_systems_are_resolved_by_name_and_kind() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("tar"), archive(&[Tar::file("bin/sh", b"#!")])).unwrap();
    fs::write(at("squash"), [&b"hsqs"[..], &[0; 600]].concat()).unwrap();
    fs::write(at("erofs"), [&[0; 1024][..], &0xE0F5_E1E2_u32.to_le_bytes()].concat()).unwrap();
    fs::write(at("text"), "neither").unwrap();
    assert!(Preloaded::detect(&at("text")).is_err());
    let names = ["folder", "tar", "squash", "erofs"].map(|name| (name, at(name)));
    let names: Vec<_> = names.iter().map(|(name, path)| (*name, path.as_path())).collect();
    let config = rootfs_config(&names, HostRoot::Forbidden);
    let resolve = |url: &str| Rootfs::resolve(url, &config);
    assert_eq!(resolve("preloaded:folder"), Ok(LayerPlan::Folder(at("folder"))));
    let plan = LayerPlan::Archive { path: at("tar"), format: Format::Tar };
    assert_eq!(resolve("preloaded:tar"), Ok(plan));
    for (name, kind) in [("squash", FileSystem::Squashfs), ("erofs", FileSystem::Erofs)] {
        assert_eq!(config.preloaded[name].kind, PreloadedKind::Image(kind));
        let plan = LayerPlan::Image { path: at(name), file_system: kind, name: name.into() };
        assert_eq!(resolve(&format!("preloaded:{name}")), Ok(plan));
    }
    assert_eq!(resolve("host:"), Err(RootfsError::HostForbidden));
    assert_eq!(resolve("preloaded:other"), Err(RootfsError::Unknown("other".into())));
    for url in [
        "",
        "host",
        "host:/etc",
        "preloaded:",
        "preloaded:../x",
        "preloaded:.x",
        "preloaded:a/b",
        "preloaded+layer:tar?layer=x",
        "docker://x",
        "preloaded:tar?x",
        "/etc",
    ] {
        assert!(matches!(resolve(url), Err(RootfsError::Unsupported(_))), "{url}");
    }
}

#[test]
fn an_archive_becomes_one_shared_layer() {
    let home = tempfile::tempdir().unwrap();
    let (path, store_at) = (home.path().join("a.tar"), home.path().join("layers"));
    fs::create_dir_all(store_at.join("dead.partial/x")).unwrap();
    fs::write(&path, archive(&[Tar::file("bin/sh", b"#!"), Tar::new(b'6', b"dev/pipe", b"")]))
        .unwrap();
    let config = rootfs_config(&[("a", &path)], HostRoot::Forbidden);
    let plan = Rootfs::resolve("preloaded:a", &config).unwrap();
    let store = LayerStore::open(&store_at).unwrap();
    assert!(!store_at.join("dead.partial").exists());
    assert!(LayerStore::open(&store_at).is_err(), "it has an owner");
    let layers: Vec<_> = std::thread::scope(|scope| {
        let make = || prepare(&plan, &config, &store, &Cancel::new()).unwrap();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
        threads.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert!(layers.iter().all(|it| *it == layers[0]));
    let Lower::Folder(folder) = &layers[0].lowers[0] else { panic!("{layers:?}") };
    assert_eq!(fs::read_to_string(folder.join("bin/sh")).unwrap(), "#!");
    assert!(
        folder
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .contains(&sha256_hex(&fs::read(&path).unwrap()))
    );
    // A bad one leaves no folder.
    fs::write(&path, archive(&[Tar::file("ok", b""), Tar::file("../evil", b"")])).unwrap();
    let error = prepare(&plan, &config, &store, &Cancel::new()).unwrap_err().to_string();
    assert!(error.contains("the path has a `..`"), "{error}");
    assert_eq!(fs::read_dir(&store_at).unwrap().count(), 2, "one layer and the lock");
}

#[test]
fn the_host_root_is_usable_and_tells_no_secrets() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("machine");
    for folder in ["usr/bin", "etc/ssl/certs", "etc/ssl/private", "etc/alternatives", "sbin"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for (path, text) in [
        ("etc/shadow", "root:hash"),
        ("etc/passwd", "admin:x:1"),
        ("etc/machine-id", "id"),
        ("etc/ssl/private/k", "key"),
        ("etc/ssl/certs/ca.crt", "CERT"),
        ("etc/ssl/certs/oops.pem", "-----BEGIN PRIVATE KEY-----"),
        ("etc/ld.so.cache", "cache"),
        ("etc/services", "http 80"),
        ("etc/resolv.conf", "nameserver 127.0.0.53\nnameserver 192.0.2.1\nsearch x\nodd y"),
    ] {
        fs::write(root.join(path), text).unwrap();
    }
    fs::write(root.join("etc/ssl/certs/hidden.crt"), "x").unwrap();
    let only_owner = fs::Permissions::from_mode(0o600);
    fs::set_permissions(root.join("etc/ssl/certs/hidden.crt"), only_owner).unwrap();
    for (link, to) in [
        ("bin", "usr/bin"),
        ("lib", "/opt/lib"),
        ("lib64", "usr/../etc"),
        ("etc/alternatives/awk", "/usr/bin/mawk"),
        ("etc/alternatives/bad", "/etc/shadow"),
        ("etc/ssl/certs/leak.crt", "/etc/shadow"),
        ("etc/ssl/certs/1234.0", "ca.crt"),
        ("etc/localtime", "/usr/share/zoneinfo/UTC"),
    ] {
        symlink(to, root.join(link)).unwrap();
    }
    let config = rootfs_config(&[], HostRoot::At(root.clone()));
    let store = LayerStore::open(&home.path().join("layers")).unwrap();
    let plan = Rootfs::resolve("host:", &config).unwrap();
    let prepared = prepare(&plan, &config, &store, &Cancel::new()).unwrap();
    assert_eq!(prepare(&plan, &config, &store, &Cancel::new()).unwrap(), prepared);
    let bound: Vec<_> = prepared.binds.iter().map(|it| it.target.to_str().unwrap()).collect();
    assert_eq!(bound, ["usr", "sbin"]);
    let Lower::Folder(folder) = &prepared.lowers[0] else { panic!("{prepared:?}") };
    let link = |path: &str| fs::read_link(folder.join(path)).ok();
    assert_eq!(link("bin").as_deref(), Some(Path::new("usr/bin")));
    assert_eq!(link("etc/alternatives/awk").as_deref(), Some(Path::new("/usr/bin/mawk")));
    assert!(link("etc/ssl/certs/1234.0").is_some() && link("etc/localtime").is_some());
    let read = |path: &str| fs::read_to_string(folder.join(path)).unwrap();
    assert_eq!(read("etc/resolv.conf"), "nameserver 192.0.2.1\nsearch x\n");
    assert!(read("etc/passwd").starts_with("root:x:0:0:") && !read("etc/passwd").contains("admin"));
    assert_eq!(
        (read("etc/ssl/certs/ca.crt"), read("etc/services")),
        ("CERT".into(), "http 80".into())
    );
    let mode = fs::metadata(folder.join("tmp")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o1777);
    for path in [
        "lib",
        "lib64",
        "etc/shadow",
        "etc/machine-id",
        "etc/ssl/private",
        "etc/alternatives/bad",
        "etc/ssl/certs/leak.crt",
        "etc/ssl/certs/oops.pem",
        "etc/ssl/certs/hidden.crt",
    ] {
        assert!(fs::symlink_metadata(folder.join(path)).is_err(), "{path}");
    }
}
