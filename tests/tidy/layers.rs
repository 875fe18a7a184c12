//! Which modules of the agent may name which: values below, decisions above them, the machine beside.

use super::{File, check, code_only, is_test_file, is_word, place, rust, without_tests};

/// Folders of the agent whose files may name only these others of its modules. So the executor and a
/// machine meet in values, and a shim of an older release needs no more of the agent than the wire.
const LAYERS: [(&str, &[&str]); 4] = [
    ("agent/src/container", &["container"]),
    ("agent/src/kernel", &["container", "kernel"]),
    ("agent/src/shim", &["container", "kernel", "shim"]),
    ("agent/src/executor", &["clock", "container", "executor"]),
];

/// Pairs of modules of the agent of which the first may not name the second.
const STRANGERS: [(&str, &str); 2] =
    [("agent/src/runtime", "executor"), ("agent/src/image", "executor")];

/// Which modules of its crate a file names, by `crate::`.
pub(super) fn layers(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    let is_in = |path: &str, folder: &str| {
        path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(['/', '.']))
    };
    for file in rust(files).filter(|file| !is_test_file(&file.path)) {
        let code = code_only(&file.text);
        let code = without_tests(&code);
        for (at, prefix) in code.match_indices("crate::") {
            let rest = &code[at + prefix.len()..];
            let named = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
            let beyond = LAYERS
                .iter()
                .any(|(folder, may)| is_in(&file.path, folder) && !may.contains(&named));
            let strange = STRANGERS
                .iter()
                .any(|(folder, other)| is_in(&file.path, folder) && *other == named);
            if beyond || strange {
                findings.push(place(&file.path, code, at) + "names " + named);
            }
        }
    }
    findings
}

#[test]
fn a_layer_that_looks_up_is_seen() {
    let machine = "use crate::runtime::fake::Fake;";
    let tests = format!("#[cfg(test)]\nmod tests {{ {machine} }}");
    check(
        layers,
        &[
            &[("agent/src/executor/logic.rs", "use crate::container::op::Deed;")],
            &[("agent/src/executor/logic/tests.rs", machine)],
            &[("agent/src/executor/logic.rs", &tests)],
            &[("agent/src/runtime/shim.rs", "use crate::shim::wire::Request;")],
            &[("agent/src/shimmer.rs", machine)],
        ],
        &[
            &[("agent/src/executor/logic.rs", machine)],
            &[("agent/src/executor.rs", machine)],
            &[("agent/src/runtime/machine.rs", "use crate::executor::logic::Input;")],
            &[("agent/src/shim/serve.rs", "use crate::runtime::cgroup::Cgroup;")],
            &[("agent/src/container/op.rs", "use crate::shim::wire::Request;")],
        ],
    );
}
