//! Other runtimes, told to do what we do: their bundle begins as `runc spec` writes it, or crun's.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{FIRST_ID, IDS, LIMITS};

/// As `CAPABILITIES` in the shim.
const CAPABILITIES: [&str; 11] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_SETFCAP",
];

/// As in the shim's seccomp filter, those with conditions on their arguments left out.
const REFUSED: &str = "acct add_key adjtimex bpf clock_adjtime clock_settime delete_module \
    fanotify_init finit_module fsconfig fsmount fsopen fspick init_module io_uring_enter \
    io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl \
    lookup_dcookie mbind migrate_pages mount mount_setattr move_mount move_pages name_to_handle_at \
    nfsservctl open_by_handle_at open_tree perf_event_open pivot_root process_vm_readv \
    process_vm_writev ptrace quotactl reboot request_key set_mempolicy setdomainname sethostname \
    setns settimeofday swapoff swapon syslog umount2 userfaultfd uselib vhangup ustat";

/// Another runtime that is installed here.
pub(super) struct Peer {
    pub(super) name: &'static str,
    bundle: PathBuf,
}

impl Peer {
    /// Looks for it, and writes its bundle below `folder`.
    pub(super) fn find(
        name: &'static str,
        layer: &Path,
        folder: &Path,
    ) -> anyhow::Result<Option<Peer>> {
        let bundle = folder.join(name);
        std::fs::create_dir(&bundle)?;
        let spec = Command::new(name).arg("spec").current_dir(&bundle).status();
        if !spec.is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        let path = bundle.join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        adjust(&mut config, layer);
        std::fs::write(path, serde_json::to_vec(&config)?)?;
        Ok(Some(Peer { name, bundle }))
    }

    /// One run. The cgroup is named by the configuration, so each run has a copy with its own.
    pub(super) fn run(&self, id: &str) -> anyhow::Result<()> {
        let status = Command::new(self.name)
            .args(["run", "--bundle"])
            .arg(&self.bundle)
            .arg(id)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("start {}", self.name))?;
        let said = String::from_utf8_lossy(&status.stderr);
        ensure!(status.status.success(), "{} ended with {}: {said}", self.name, status.status);
        Ok(())
    }
}

fn adjust(config: &mut Value, layer: &Path) {
    let process = &mut config["process"];
    process["terminal"] = json!(false);
    process["args"] = json!(["/bin/true"]);
    process["noNewPrivileges"] = json!(true);
    process["capabilities"] = json!({
        "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES,
    });
    config["root"] = json!({"path": layer, "readonly": false});
    config["hostname"] = json!("bench");
    if let Some(mounts) = config["mounts"].as_array_mut() {
        // We show no container its cgroups.
        mounts.retain(|mount| mount["destination"] != "/sys/fs/cgroup");
        for mount in mounts.iter_mut().filter(|mount| mount["destination"] == "/dev/pts") {
            mount["options"] =
                json!(["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]);
        }
        mounts.push(json!({"destination": "/usr", "type": "bind", "source": "/usr",
            "options": ["rbind", "ro", "nosuid", "nodev"]}));
        mounts.push(json!({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs",
            "options": ["nosuid", "nodev", "mode=1777"]}));
    }
    let linux = &mut config["linux"];
    linux["namespaces"] = ["pid", "network", "ipc", "uts", "mount", "cgroup", "user"]
        .into_iter()
        .map(|kind| json!({"type": kind}))
        .collect();
    let map = json!([{"containerID": 0, "hostID": FIRST_ID, "size": IDS}]);
    linux["uidMappings"] = map.clone();
    linux["gidMappings"] = map;
    linux["resources"]["memory"] = json!({"limit": LIMITS.memory_bytes});
    linux["resources"]["pids"] = json!({"limit": LIMITS.pids});
    linux["resources"]["cpu"] = json!({"shares": LIMITS.cpu_shares});
    linux["seccomp"] = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": REFUSED.split_whitespace().collect::<Vec<_>>(), "action": "SCMP_ACT_ERRNO"}],
    });
}
