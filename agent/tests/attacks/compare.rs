//! A container of ours beside one that runc makes of its own default spec, both asked the same
//! questions from inside, both as their root. `make security` prints the table that
//! `docs/security.md` shows; the test holds what that page claims.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use super::cell::{Cell, process, skip};

/// Asked inside: a line `question<TAB>answer` each.
const QUESTIONS: &str = r"
say() { printf '%s\t%s\n' $1 $(echo $2 | tr -s ' \n' ',' | sed 's/,$//'); }
for kind in user pid mnt net uts ipc cgroup time; do
    say namespace-$kind $(readlink /proc/self/ns/$kind)
done
for name in CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp Seccomp_filters; do
    say $name $(sed -n s/^$name:.//p /proc/self/status)
done
read first host count < /proc/self/uid_map; say uid-map $first:$host:$count
say groups $(id -G | tr ' ' ',')
say devices $(ls /dev | tr '\n' ',')
say open-files $(ulimit -n):$(ulimit -Hn)
say core $(ulimit -c)
say cgroup $(cut -d: -f3 /proc/self/cgroup | sort -u | tr '\n' ',')
say links $(ls /sys/class/net | tr '\n' ',')
say init $(tr '\0' ' ' < /proc/1/cmdline | cut -c1-9)
say init-seccomp $(sed -n s/^Seccomp:.//p /proc/1/status)
sed 's/^/mount\t/' /proc/self/mountinfo
";

type Answers = BTreeMap<String, String>;

/// Kernel files that somebody hides from containers, or shows for reading only.
const KERNEL_FILES: [&str; 17] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/bus",
    "/proc/fs",
    "/proc/interrupts",
    "/proc/irq",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/sys",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// The answers, and what the lines of mountinfo among them tell.
fn parse(text: &str) -> Answers {
    let mut answers = Answers::new();
    let (mut masked, mut fixed) = (Vec::new(), Vec::new());
    for (question, answer) in text.lines().filter_map(|line| line.split_once('\t')) {
        if question != "mount" {
            answers.insert(question.to_owned(), answer.to_owned());
            continue;
        }
        let (left, right) = answer.split_once(" - ").unwrap();
        let left: Vec<&str> = left.split(' ').collect();
        let (root, target, flags) = (left[3], left[4], left[5]);
        let kind = right.split(' ').next().unwrap();
        if !KERNEL_FILES.contains(&target) {
            answers.insert(format!("mount {target}"), format!("{kind}:{flags}"));
        } else if kind == "tmpfs" || root == "/null" {
            masked.push(target);
        } else if flags.starts_with("ro") {
            fixed.push(target);
        }
    }
    masked.sort_unstable();
    answers.insert("masked".to_owned(), masked.join(","));
    fixed.sort_unstable();
    answers.insert("read-only".to_owned(), fixed.join(","));
    answers
}

/// The same layer and /usr, all else as `runc spec` writes it.
fn ask_runc(cell: &Cell) -> Option<Answers> {
    let bundle = cell.folder.path().join("bundle");
    std::fs::create_dir(&bundle).unwrap();
    let made = Command::new("runc").arg("spec").current_dir(&bundle).status().ok()?;
    assert!(made.success());
    let config = bundle.join("config.json");
    let mut spec: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    spec["process"]["terminal"] = false.into();
    spec["process"]["args"] = vec!["/bin/sh", "-c", QUESTIONS].into();
    spec["root"]["path"] = cell.folder.path().join("layer").to_str().unwrap().into();
    let usr = serde_json::json!({
        "destination": "/usr", "source": "/usr", "type": "none", "options": ["rbind", "ro"],
    });
    spec["mounts"].as_array_mut().unwrap().push(usr);
    std::fs::write(&config, serde_json::to_vec(&spec).unwrap()).unwrap();
    let state = cell.folder.path().join("runc");
    let run = Command::new("runc")
        .args([Path::new("--root"), &state, Path::new("run"), Path::new("--bundle"), &bundle])
        .arg(cell.spec("runc").id)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    Some(parse(&String::from_utf8(run.stdout).unwrap()))
}

fn own_namespace(answers: &Answers, kind: &str) -> &'static str {
    let host = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
    let inside = &answers[&format!("namespace-{kind}")];
    if Path::new(inside) == host { "the host's" } else { "its own" }
}

#[expect(clippy::print_stdout, reason = "make security shows it")]
fn print(ours: &Answers, theirs: &Answers) {
    println!("| | ours | runc |\n|---|---|---|");
    let questions: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    for question in questions {
        let plain = |answers: &Answers| match question.strip_prefix("namespace-") {
            Some(kind) => own_namespace(answers, kind).to_owned(),
            None => answers.get(question).cloned().unwrap_or_default().replace(',', " "),
        };
        println!("| {question} | {} | {} |", plain(ours), plain(theirs));
    }
}

#[test]
fn what_the_page_on_security_claims_holds() {
    let name = "what_the_page_on_security_claims_holds";
    let Some(cell) = Cell::new(name) else { return };
    let spec = cell.spec("ours");
    let mut shim = cell.shims.create(&spec).unwrap();
    shim.run(process(1, "root", QUESTIONS)).unwrap();
    shim.wait(1, super::cell::PATIENCE).unwrap().unwrap();
    let ours = parse(&cell.lines(&spec.id));
    cell.end(shim);
    for kind in ["user", "pid", "mnt", "net", "uts", "ipc", "cgroup"] {
        assert_eq!(own_namespace(&ours, kind), "its own", "{kind}");
    }
    assert_eq!(ours["uid-map"], "0:100000:65536");
    assert_eq!((ours["NoNewPrivs"].as_str(), ours["Seccomp"].as_str()), ("1", "2"));
    let there = |path: &&str| Path::new(path).exists();
    for path in ["/proc/bus", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/sys"]
        .iter()
        .filter(|it| there(it))
    {
        assert!(ours["read-only"].split(',').any(|it| it == *path), "{path}: {ours:?}");
    }
    for (mount, flags) in [("/proc", "nosuid,nodev,noexec"), ("/usr", "nosuid,nodev")] {
        assert!(ours[&format!("mount {mount}")].contains(flags), "{mount}: {ours:?}");
    }
    match ask_runc(&cell) {
        None => skip(name, "runc is not installed: one column only"),
        Some(theirs) => print(&ours, &theirs),
    }
}
