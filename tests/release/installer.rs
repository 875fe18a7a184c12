//! `packaging/install.sh` and the tar, in a file system of their own: what is placed, what an upgrade
//! keeps, what is left. No program is built or started.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use volvox_tests::skip;

use crate::markdown::root;

/// An unpacked tar with programs that do nothing.
fn unpacked(folder: &Path) -> PathBuf {
    let place = folder.join("volvox-0-test");
    for part in ["bin", "lib/volvox", "etc", "systemd", "share/man", "share/completions"] {
        std::fs::create_dir_all(place.join(part)).unwrap();
    }
    let programs =
        ["bin/volvox", "bin/volvox-agent", "bin/volvox-coordinator", "lib/volvox/volvox-shim"];
    for program in programs {
        std::fs::write(place.join(program), "#!/bin/sh\necho one\n").unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(place.join(program), mode).unwrap();
    }
    for (file, sample) in [
        ("etc/agent.toml", volvox_agent::config::SAMPLE),
        ("etc/coordinator.toml", volvox_coordinator::config::SAMPLE),
    ] {
        let text = volvox_tests::installed_configuration(sample);
        std::fs::write(place.join(file), text).unwrap();
    }
    // All of them, as packaging/tar takes them.
    for unit in std::fs::read_dir(root().join("packaging/systemd")).unwrap().flatten() {
        std::fs::copy(unit.path(), place.join("systemd").join(unit.file_name())).unwrap();
    }
    for (program, section) in [("volvox", 1), ("volvox-agent", 8), ("volvox-coordinator", 8)] {
        let pages = place.join("share/man").join(program);
        std::fs::create_dir(&pages).unwrap();
        for page in [program.to_owned(), format!("{program}-run")] {
            std::fs::write(pages.join(format!("{page}.{section}")), "").unwrap();
        }
        for file in
            [format!("bash/{program}"), format!("zsh/_{program}"), format!("fish/{program}.fish")]
        {
            let path = place.join("share/completions").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
    }
    std::fs::copy(root().join("packaging/install.sh"), place.join("install.sh")).unwrap();
    place
}

fn install(script: &Path, root: &Path, words: &[&str]) -> Output {
    Command::new("sh").arg(script).arg("--root").arg(root).args(words).output().unwrap()
}

#[track_caller]
fn done(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// All files below, without the folder's own name.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                let path = entry.path();
                found.push(format!("/{}", path.strip_prefix(folder).unwrap().display()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn what_is_installed_is_upgraded_and_taken_away_again() {
    let folder = tempfile::tempdir().unwrap();
    let tar = unpacked(folder.path());
    let (script, system) = (tar.join("install.sh"), folder.path().join("system"));
    let told = done(&install(&script, &system, &["agent", "coordinator", "cli"]));
    // sudo does not find them everywhere.
    for path in ["bin/volvox\n", "bin/volvox-agent join LINE\n", "bin/volvox-coordinator init\n"] {
        assert!(told.contains(&format!(" /usr/local/{path}")), "{told}");
    }
    assert!(!told.contains("CAUTION"), "{told}");
    let placed = files(&system);
    for file in [
        "/usr/local/bin/volvox",
        "/usr/local/bin/volvox-agent",
        "/usr/local/bin/volvox-coordinator",
        "/usr/local/lib/volvox/volvox-shim",
        "/usr/local/share/man/man1/volvox-run.1",
        "/usr/local/share/man/man8/volvox-agent.8",
        "/usr/local/share/bash-completion/completions/volvox",
        "/etc/volvox/agent.toml",
        "/etc/volvox/coordinator.toml",
        "/usr/local/share/volvox/agent.toml",
        "/etc/systemd/system/volvox-agent.service",
        "/etc/systemd/system/volvox-coordinator.service",
        "/etc/systemd/system/volvox-coordinator-backup.service",
        "/etc/systemd/system/volvox-coordinator-backup.timer",
        "/etc/sysusers.d/volvox-coordinator.conf",
    ] {
        assert!(placed.contains(&file.to_owned()), "{file} is not in {placed:?}");
    }
    assert!(!placed.iter().any(|it| it.ends_with(".new")), "{placed:?}");
    let unit = std::fs::read_to_string(system.join("etc/systemd/system/volvox-agent.service"));
    assert!(unit.unwrap().contains("ExecStart=/usr/local/bin/volvox-agent "));
    let unit = system.join("etc/systemd/system/volvox-coordinator-backup.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    assert!(unit.contains("ExecStart=/usr/local/bin/volvox-coordinator backup "));
    let data = std::fs::metadata(system.join("var/lib/volvox/coordinator")).unwrap();
    assert_eq!(data.permissions().mode() & 0o777, 0o700);

    // An upgrade: new programs, and what the operator wrote stays.
    std::fs::write(tar.join("bin/volvox-agent"), "#!/bin/sh\necho two\n").unwrap();
    std::fs::write(system.join("etc/volvox/agent.toml"), "zone = \"z1\"\n").unwrap();
    let told = done(&install(&script, &system, &["agent"]));
    assert!(told.contains("/etc/volvox/agent.toml stays"), "{told}");
    let compare = "diff -u /etc/volvox/agent.toml /usr/local/share/volvox/agent.toml";
    assert!(told.contains(compare), "{told}");
    let agent = std::fs::read_to_string(system.join("usr/local/bin/volvox-agent")).unwrap();
    assert!(agent.contains("two"), "{agent}");
    assert_eq!(std::fs::read(system.join("etc/volvox/agent.toml")).unwrap(), b"zone = \"z1\"\n");

    std::fs::create_dir_all(system.join("var/lib/volvox/agent/mesh")).unwrap();
    let told = done(&install(&script, &system, &["--remove", "agent"]));
    assert!(told.contains("/etc/volvox/agent.toml and /var/lib/volvox/agent"), "{told}");
    assert!(system.join("var/lib/volvox/agent/mesh").exists());
    assert!(!files(&system).iter().any(|it| it.contains("bin/volvox-agent")));
    done(&install(&script, &system, &["--purge", "agent", "coordinator", "cli"]));
    assert_eq!(files(&system), Vec::<String>::new());
    assert!(!system.join("var/lib/volvox").exists());
}

#[test]
fn the_tar_itself_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let tar = unpacked(folder.path());
    let packed = folder.path().join("volvox.tar.gz");
    let name = tar.file_name().unwrap();
    let mut pack = Command::new("tar");
    pack.arg("-czf").arg(&packed).arg("-C").arg(folder.path()).arg(name);
    let made = pack.status().unwrap();
    assert!(made.success());
    let system = folder.path().join("system");
    let script = root().join("packaging/install.sh");
    let words = ["--from", packed.to_str().unwrap(), "--prefix", "/opt/volvox", "agent"];
    // Another tar than the one that was meant.
    let sum = folder.path().join("volvox.tar.gz.sha256");
    std::fs::write(&sum, format!("{:064}  volvox.tar.gz\n", 0)).unwrap();
    let said = install(&script, &system, &words);
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("fetch it again"));
    assert!(!system.exists());
    let sha256 =
        Command::new("sha256sum").arg("volvox.tar.gz").current_dir(folder.path()).output().unwrap();
    std::fs::write(&sum, sha256.stdout).unwrap();
    done(&install(&script, &system, &words));
    assert!(system.join("opt/volvox/bin/volvox-agent").exists());
    let unit = std::fs::read_to_string(system.join("etc/systemd/system/volvox-agent.service"));
    let unit = unit.unwrap();
    assert!(unit.contains("ExecStart=/opt/volvox/bin/volvox-agent "));
    assert!(unit.contains("ExecStopPost=-/opt/volvox/bin/volvox-agent "));
    // Where it was put is found again.
    done(&install(&script, &system, &["--purge", "agent"]));
    assert_eq!(files(&system), Vec::<String>::new());
}

/// `packaging/tar` writes it where there was no musl.
#[test]
fn what_a_tar_has_to_caution_of_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let tar = unpacked(folder.path());
    std::fs::write(tar.join("CAUTION"), "no musl\nno names\n").unwrap();
    let output = install(&tar.join("install.sh"), &folder.path().join("system"), &["agent"]);
    done(&output);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, "install: CAUTION: no musl\ninstall: CAUTION: no names\n");
}

#[test]
fn mistakes_are_told_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let script = root().join("packaging/install.sh");
    for words in
        [&["agnt"][..], &["--prefix", "here", "agent"], &["--from", "/nowhere", "agent"], &[]]
    {
        let said = install(&script, folder.path(), words);
        assert_eq!(said.status.code(), Some(2), "{words:?}");
        assert_eq!(files(folder.path()), Vec::<String>::new(), "{words:?}");
    }
}

/// What another machine would be: this one's programs, read-only, with everything else of its own. Only
/// in it is the installer called without `--root`, so that a refusal that fails installs nothing here.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    /// In a mount namespace: FOLDER COMMANDS.
    const INSIDE: &str = r#"
set -eu
there=$1
mkdir -p $there/new
mount -t tmpfs none $there/new
cd $there/new
mkdir usr proc etc var tmp tar run
for each in bin sbin lib lib64; do
    if [ -L /$each ]; then ln -s usr/$each $each; fi
done
mount --bind /usr usr
mount -o remount,bind,ro usr
mount -t tmpfs none usr/local
mount -t proc none proc
mount --bind $there/volvox-0-test tar
mkdir -p var/lib/dpkg dev
: >dev/null
echo root:x:0:0::/:/bin/sh >etc/passwd
exec chroot . /bin/sh -euc "$2" 2>&1
"#;

    /// None, and said so, without root.
    fn new(name: &str) -> Option<Machine> {
        if !nix::unistd::geteuid().is_root() {
            skip(name, "a file system of its own needs root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        unpacked(folder.path());
        Some(Machine { folder })
    }

    fn tar(&self) -> PathBuf {
        self.folder.path().join("volvox-0-test")
    }

    /// Does this there, in a mount namespace that ends with it: exit code, and all that was said.
    fn does(&self, script: &str) -> (i32, String) {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", Machine::INSIDE, "sh"]);
        let output = command.arg(self.folder.path()).arg(script).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code().unwrap(), said + &String::from_utf8_lossy(&output.stderr))
    }
}

#[test]
fn a_tar_of_another_architecture_is_refused() {
    let Some(machine) = Machine::new("a_tar_of_another_architecture_is_refused") else { return };
    std::fs::write(machine.tar().join("machine"), "pdp11\n").unwrap();
    let (code, said) =
        machine.does("code=0; sh /tar/install.sh agent || code=$?; ls /usr/local /etc; exit $code");
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("this tar is for pdp11, and this machine is "), "{said}");
    assert!(!said.contains("volvox"), "something was installed: {said}");
    // The same for the machine's own: the refusal was for that reason alone.
    let own = Command::new("uname").arg("-m").output().unwrap().stdout;
    std::fs::write(machine.tar().join("machine"), own).unwrap();
    let (code, said) = machine.does("sh /tar/install.sh agent; ls /usr/local/bin /etc");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("volvox-agent"), "{said}");
    assert!(said.contains("no systemd here: start volvox-agent yourself"), "{said}");
}

#[test]
fn a_machine_with_the_debian_package_is_refused() {
    let name = "a_machine_with_the_debian_package_is_refused";
    let Some(machine) = Machine::new(name) else { return };
    if !Path::new("/usr/bin/dpkg-query").exists() {
        return skip(name, "no dpkg here");
    }
    let with = |package: &str, status: &str, words: &str| {
        let record = format!(
            "Package: {package}\nStatus: {status}\nVersion: 1\nArchitecture: all\n\
             Maintainer: x <x@example.invalid>\nDescription: x\n"
        );
        let script =
            format!("printf '%s\n' '{record}' >/var/lib/dpkg/status; sh /tar/install.sh {words}");
        machine.does(&script)
    };
    let here = "install ok installed";
    for (package, words) in [
        ("volvox-agent", "agent"),
        ("volvox-agent", "--purge agent"),
        ("volvox", "agent cli"),
        ("volvox-coordinator", "agent coordinator"),
    ] {
        let (code, said) = with(package, here, words);
        assert_eq!(code, 2, "{package}, {words}: {said}");
        let told = format!("{package} is here as a Debian package: use apt for it");
        assert!(said.contains(&told), "{package}, {words}: {said}");
        assert!(!said.contains("to make this machine a cell"), "a part was installed: {said}");
    }
    // Another part, and one of which only the configuration is left, are no hindrance.
    for (package, status) in [("volvox", here), ("volvox-agent", "deinstall ok config-files")] {
        let (code, said) = with(package, status, "agent");
        assert_eq!(code, 0, "{package}, {status}: {said}");
    }
}

#[test]
fn mount_points_are_left_and_said() {
    let Some(machine) = Machine::new("mount_points_are_left_and_said") else { return };
    // Below the folder: nothing is deleted, since it could be somebody's disk.
    let (code, said) = machine.does(
        "sh /tar/install.sh agent
         mkdir -p /var/lib/volvox/agent/layers
         echo mine >/var/lib/volvox/agent/kept
         mount -t tmpfs none /var/lib/volvox/agent/layers
         echo too >/var/lib/volvox/agent/layers/kept
         code=0
         sh /tar/install.sh --purge agent || code=$?
         cat /var/lib/volvox/agent/kept /var/lib/volvox/agent/layers/kept
         ls /usr/local/bin /etc/volvox
         exit $code",
    );
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("something is mounted below /var/lib/volvox/agent: unmount it"),
        "{said}"
    );
    assert!(said.contains("mine\ntoo\n"), "something was deleted: {said}");
    assert!(said.contains("volvox-agent\n") && said.contains("agent.toml"), "{said}");

    // The folder itself, on a disk of its own: emptied, left and said.
    let (code, said) = machine.does(
        "sh /tar/install.sh agent
         mkdir -p /var/lib/volvox/agent
         mount -t tmpfs none /var/lib/volvox/agent
         mkdir /var/lib/volvox/agent/mesh
         sh /tar/install.sh --purge agent
         echo left: $(find /var/lib/volvox /etc/volvox 2>/dev/null)",
    );
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("/var/lib/volvox/agent is left: it, or something in it"), "{said}");
    assert!(said.ends_with("left: /var/lib/volvox /var/lib/volvox/agent\n"), "{said}");
}

/// A machine with the maintainer scripts of packages in `/tar/deb`, and a systemd that does and says what
/// files in `/run/says` want: `active` and `failing` are lists of units.
fn packaged(name: &str) -> Option<Machine> {
    let machine = Machine::new(name)?;
    for part in ["agent", "coordinator"] {
        let place = machine.tar().join("deb").join(part);
        std::fs::create_dir_all(&place).unwrap();
        for script in std::fs::read_dir(root().join("packaging/deb").join(part)).unwrap().flatten()
        {
            std::fs::copy(script.path(), place.join(script.file_name())).unwrap();
        }
    }
    std::fs::write(machine.tar().join("begin"), BEGIN).unwrap();
    Some(machine)
}

/// Sourced first: what is asked of systemd is written down in `/run/asked`.
const BEGIN: &str = r#"
mount -t tmpfs none /usr/share
mkdir -p /usr/share/volvox /run/systemd/system /run/says /usr/local/bin
cp /tar/etc/*.toml /usr/share/volvox/
: >/run/asked; : >/run/says/active; : >/run/says/failing
fake() { printf '#!/bin/sh
%s
' "$2" >/usr/local/bin/$1; chmod 755 /usr/local/bin/$1; }
fake systemctl 'echo "systemctl $*" >>/run/asked
case "$*" in
*is-active*) for last; do :; done; grep -qx "$last" /run/says/active ;;
*is-enabled*) echo enabled ;;
esac'
fake deb-systemd-invoke 'echo "invoke $*" >>/run/asked; ! grep -qx "$2" /run/says/failing'
fake deb-systemd-helper 'echo "helper $*" >>/run/asked'
fake systemd-sysusers ':'
fake getent 'false'
PATH=/usr/local/bin:$PATH
deb() { part=$1; script=$2; shift 2; sh /tar/deb/$part/$script "$@"; }
"#;

/// What dpkg calls when, as Debian's policy has it.
#[test]
fn a_configuration_is_placed_once_and_is_the_operators() {
    let name = "a_configuration_is_placed_once_and_is_the_operators";
    let Some(machine) = packaged(name) else { return };
    let (code, said) = machine.does(
        "umask 077; . /tar/begin
         deb agent postinst configure ''
         cmp /etc/volvox/agent.toml /usr/share/volvox/agent.toml
         stat -c 'mode %a' /etc/volvox/agent.toml; stat -c 'folder %a' /etc/volvox
         # An upgrade, with another one in the package.
         echo mine >/etc/volvox/agent.toml
         echo theirs >/usr/share/volvox/agent.toml
         deb agent prerm upgrade 2
         deb agent postrm upgrade 2
         deb agent postinst configure 1
         cat /etc/volvox/agent.toml
         # What was deleted stays away, at an upgrade and when a removal is given up.
         rm /etc/volvox/agent.toml
         deb agent postinst configure 1
         deb agent postinst abort-remove
         ls -A /etc/volvox
         # Somebody's link, to nowhere yet.
         ln -s /nowhere /etc/volvox/agent.toml
         deb agent postinst configure ''
         readlink /etc/volvox/agent.toml
         deb agent postrm purge
         echo left: $(find /etc/volvox /var/lib/volvox 2>/dev/null)",
    );
    assert_eq!(code, 0, "{said}");
    let lines: Vec<&str> =
        said.lines().filter(|it| !it.starts_with("volvox-agent: to make")).collect();
    assert_eq!(lines, ["mode 644", "folder 755", "mine", "/nowhere", "left:"], "{said}");
}

#[test]
fn a_service_that_does_not_start_is_named_and_the_package_is_installed() {
    let name = "a_service_that_does_not_start_is_named_and_the_package_is_installed";
    let Some(machine) = packaged(name) else { return };
    for (part, before, failing, is_told) in [
        ("agent", "''", "volvox-agent.service", true),
        ("agent", "1", "volvox-agent.service", true),
        ("agent", "1", "", false),
        ("coordinator", "1", "volvox-coordinator.service", true),
        ("coordinator", "1", "volvox-coordinator-backup.timer", true),
        ("coordinator", "1", "", false),
    ] {
        let script = format!(
            ". /tar/begin; mkdir -p /var/lib/volvox/coordinator
             echo volvox-{part}.service >/run/says/active
             echo {failing} >/run/says/failing
             deb {part} postinst configure {before}; cat /run/asked"
        );
        let (code, said) = machine.does(&script);
        assert_eq!(code, 0, "{said}");
        assert_eq!(said.contains("DID NOT START"), is_told, "{part} {before} {failing}: {said}");
        let unit = failing.trim_end_matches(".service");
        assert_eq!(said.contains(&format!("journalctl -u {unit} -n")), is_told, "{said}");
        let verb = if before == "1" { "restart" } else { "start" };
        assert!(said.contains(&format!("invoke {verb} volvox-{part}.service")), "{said}");
    }
}

#[test]
fn a_removal_that_fails_says_the_true_reason() {
    let Some(machine) = packaged("a_removal_that_fails_says_the_true_reason") else { return };
    let with = |clean: &str, check: &str, words: &str| {
        machine.does(&format!(
            ". /tar/begin; mkdir -p /etc/volvox; : >/etc/volvox/agent.toml
             fake volvox-agent 'case $1 in clean) {clean} ;; config) {check} ;; esac'
             code=0; {words} deb agent prerm remove || code=$?
             [ $code != 0 ] || deb agent postrm remove
             ls /run/volvox-agent.* 2>/dev/null || true
             exit $code"
        ))
    };
    let gone = "gone are the program, the containers and their network";
    let (code, said) = with("true", "true", "");
    assert!(code == 0 && said.contains(gone) && !said.contains("NOT GONE"), "{said}");
    let (code, said) = with("false", "true", "");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("not everything could be taken away"), "{said}");
    assert!(said.contains("VOLVOX_LEAVE=yes dpkg -r volvox-agent"), "{said}");
    let (code, said) = with("false", "false", "");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("/etc/volvox/agent.toml is faulty"), "{said}");
    assert!(said.contains("VOLVOX_LEAVE=yes dpkg -r volvox-agent"), "{said}");
    assert!(!said.contains("not everything could be taken away"), "{said}");
    for (clean, is_left) in [("false", true), ("true", false)] {
        let (code, said) = with(clean, "false", "export VOLVOX_LEAVE=yes;");
        assert_eq!(code, 0, "{said}");
        assert_eq!(said.contains("NOT GONE"), is_left, "{said}");
        assert_eq!(said.contains(gone), !is_left, "{said}");
        assert!(!said.contains("/run/volvox-agent."), "a mark is left: {said}");
    }
}

#[test]
fn an_installation_that_is_given_up_leaves_no_mark() {
    let Some(machine) = packaged("an_installation_that_is_given_up_leaves_no_mark") else { return };
    for part in ["agent", "coordinator"] {
        let (code, said) = machine.does(&format!(
            ". /tar/begin; deb {part} preinst install 1; ls /run/volvox-{part}.*
             deb {part} postrm abort-install 1; ls /run"
        ));
        assert_eq!(code, 0, "{said}");
        let mark = format!("volvox-{part}.installed-again");
        assert_eq!(said.matches(&mark).count(), 1, "{said}");
    }
}

/// Remove the package, install the tar, purge the package: what is there is the tar's by then.
#[test]
fn a_purge_leaves_what_is_the_tars() {
    let Some(machine) = packaged("a_purge_leaves_what_is_the_tars") else { return };
    for (part, unit, is_kept) in [
        ("agent", "cp /tar/systemd/volvox-agent.service /etc/systemd/system/", false),
        ("agent", "ln -s /dev/null /etc/systemd/system/volvox-agent.service", false),
        ("agent", "sh /tar/install.sh agent", true),
        ("agent", "sh /tar/install.sh --prefix /opt agent", true),
        ("coordinator", "", false),
        ("coordinator", "sh /tar/install.sh coordinator", true),
    ] {
        let (code, said) = machine.does(&format!(
            ". /tar/begin
             rm /usr/local/bin/getent
             echo volvox-coordinator:x:999:999::/:/bin/false >>/etc/passwd
             fake userdel 'echo userdel $*'
             fake chown ':'
             mkdir -p /etc/systemd/system /etc/volvox /var/lib/volvox/{part}
             echo theirs >/etc/volvox/{part}.toml; echo data >/var/lib/volvox/{part}/kept
             {unit}
             : >/run/asked
             deb {part} postrm purge
             echo left: $(ls /etc/volvox /var/lib/volvox/{part} 2>/dev/null)
             cat /run/asked"
        ));
        assert_eq!(code, 0, "{said}");
        let left = said.lines().find_map(|it| it.strip_prefix("left:")).unwrap();
        assert_eq!(left.contains(&format!("{part}.toml")), is_kept, "{unit}: {said}");
        assert_eq!(left.contains("kept"), is_kept, "{unit}: {said}");
        assert_eq!(said.contains(&format!("install.sh --purge {part}")), is_kept, "{said}");
        assert_eq!(said.contains(&format!("enable volvox-{part}.service")), is_kept, "{said}");
        let goes = part == "coordinator" && !is_kept;
        assert_eq!(said.contains("userdel volvox-coordinator"), goes, "{said}");
    }
}

/// Maintainer scripts and the rest are understood by the shells that will read them.
#[test]
fn scripts_are_understood_by_their_shells() {
    for (shell, file) in [
        ("sh", "packaging/install.sh"),
        ("bash", "packaging/tar"),
        ("bash", "packaging/demo"),
        ("sh", "packaging/deb/agent/preinst"),
        ("sh", "packaging/deb/coordinator/preinst"),
        ("sh", "packaging/deb/agent/postinst"),
        ("sh", "packaging/deb/agent/prerm"),
        ("sh", "packaging/deb/agent/postrm"),
        ("sh", "packaging/deb/coordinator/postinst"),
        ("sh", "packaging/deb/coordinator/prerm"),
        ("sh", "packaging/deb/coordinator/postrm"),
        ("bash", "packaging/vm/common"),
        ("bash", "packaging/vm/ctrl-c"),
        ("bash", "packaging/vm/install"),
        ("bash", "packaging/vm/run"),
        ("bash", "packaging/vm/guest-install"),
        ("sh", "packaging/vm/boot"),
    ] {
        let said = Command::new(shell).arg("-n").arg(root().join(file)).output().unwrap();
        assert!(said.status.success(), "{file}: {}", String::from_utf8_lossy(&said.stderr));
    }
}
