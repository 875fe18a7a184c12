//! App files: what people write, and what becomes of it.

use volvox_protocol::definition::UpdateStrategy;

use super::*;

fn one(text: &str) -> App {
    let mut all = apps(text, Some(Form::Toml)).unwrap_or_else(|failure| panic!("{failure:?}"));
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn refused(text: &str) -> String {
    apps(text, None).unwrap_err().message
}

/// The definition as JSON, without what is empty.
fn shown(text: &str) -> Value {
    let definition = serde_json::to_value(one(text).asked.definition).unwrap();
    let Value::Object(map) = definition else { panic!("no object") };
    let empty = [json!(0), json!(""), json!([]), json!(false), Value::Null];
    map.into_iter().filter(|(_, value)| !empty.contains(value)).collect::<Map<_, _>>().into()
}

const LEAST: &str = "name = \"a\"\nrootfs = \"host:\"\ncommand = [\"/bin/a\"]\n";

#[test]
fn the_least_has_sensible_defaults() {
    let app = one(LEAST);
    assert_eq!(app.asked.domain.as_str(), DOMAIN);
    assert_eq!((app.asked.instances, app.says_instances), (1, false));
    assert!(!app.says_definition_id && app.asked.definition_id.as_str().starts_with("d-"));
    let expected = json!({
        "rootfs": "host:", "log_guid": "a",
        "action": {"run": {
            "path": "/bin/a", "user": "root", "suppress_log_output": false,
            "volume_mounted_files": [],
        }},
    });
    assert_eq!(shown(LEAST), expected);
}

#[test]
fn short_forms_become_the_words_of_the_protocol() {
    let definition = shown(&format!(
        "{LEAST}user = \"u\"\ndir = \"/d\"\nmemory = \"2G\"\ndisk = 64\nport = 80\ntags = [\"ssd\"]\n\
         check = {{http = \"/h\", interval = \"5s\"}}\nready = [{{tcp = true, timeout = \"1s\"}}]\n\
         [env]\nA = 1\nB = \"x\"\nC = true\n"
    ));
    let run = &definition["action"]["run"];
    assert_eq!((&run["user"], &run["dir"]), (&json!("u"), &json!("/d")));
    assert_eq!((&definition["memory_mb"], &definition["disk_mb"]), (&json!(2048), &json!(64)));
    assert_eq!(definition["ports"], json!([80]));
    assert_eq!(definition["placement_tags"], json!(["ssd"]));
    assert_eq!(definition["start_timeout_ms"], json!(60_000), "a check has an end");
    let checks = &definition["check_definition"];
    let http = json!({"http_check": {"port": 80, "path": "/h", "interval_ms": 5000}});
    assert_eq!(checks["checks"], json!([http]));
    let tcp = json!({"tcp_check": {"port": 80, "connect_timeout_ms": 1000}});
    assert_eq!(checks["readiness_checks"], json!([tcp]));
    let env = json!([
        {"name": "A", "value": "1"}, {"name": "B", "value": "x"}, {"name": "C", "value": "true"}
    ]);
    assert_eq!(definition["env"], env);
    let shell = shown("name = \"a\"\nrootfs = \"host:\"\ncommand = \"echo $A\"\n");
    assert_eq!(shell["action"]["run"]["args"], json!(["-c", "echo $A"]));
}

#[test]
fn what_is_around_the_definition_is_understood() {
    let app = one(&format!(
        "instances = 4\ndomain = \"d\"\ndefinition_id = \"v1\"\nstrategy = \"recreate\"\n{LEAST}\
         [metric_tags]\nteam = \"x\"\n[rollout]\ncanaries = 2\nstuck_after = \"2m\"\n[routes]\nr = [1]\n"
    ));
    assert_eq!((app.asked.instances, app.says_instances), (4, true));
    assert_eq!((app.asked.definition_id.as_str(), app.says_definition_id), ("v1", true));
    assert_eq!(app.asked.update_strategy, UpdateStrategy::Recreate);
    let rollout = app.asked.rollout.unwrap();
    assert_eq!((rollout.canary_instances, rollout.stuck_after_ms), (2, 120_000));
    assert_eq!(app.asked.routes["r"].as_str(), "[1]");
    assert_eq!(json!(app.asked.metric_tags), json!({"team": {"static": "x"}}));
}

#[test]
fn the_same_definition_has_the_same_id() {
    let scaled = one(&format!("instances = 9\n{LEAST}"));
    assert_eq!(scaled.asked.definition_id, one(LEAST).asked.definition_id);
    let other = one(&format!("memory = 1\n{LEAST}"));
    assert_ne!(other.asked.definition_id, one(LEAST).asked.definition_id);
}

#[test]
fn several_apps_may_be_in_one_text() {
    let names = |text: &str| -> Vec<String> {
        let all = apps(text, None).unwrap_or_else(|failure| panic!("{failure:?}"));
        all.iter().map(|app| app.asked.process_guid.to_string()).collect()
    };
    let toml =
        |name: &str| format!("[[app]]\nname = \"{name}\"\nrootfs = \"host:\"\ncommand = \"x\"\n");
    assert_eq!(names(&format!("{}{}", toml("a"), toml("b"))), ["a", "b"]);
    let json = |name: &str| json!({"name": name, "rootfs": "host:", "command": "x"}).to_string();
    assert_eq!(names(&json("a")), ["a"]);
    assert_eq!(names(&format!("{}\n{}", json("a"), json("b"))), ["a", "b"]);
    assert_eq!(names(&format!("[{},{}]", json("a"), json("b"))), ["a", "b"]);
    assert_eq!(names(&format!("{{\"app\": [{},{}]}}", json("a"), json("b"))), ["a", "b"]);
    let twice = refused(&format!("[{},{}]", json("a"), json("a")));
    assert_eq!(twice, "app a is in it twice: give it another name");
    let beside = refused(&format!("rootfs = \"host:\"\n{}", toml("a")));
    assert_eq!(beside, "`rootfs` stands beside [[app]]: put it into each app");
    let second = refused(&format!("{}{}bad = 1\n", toml("a"), toml("b")));
    assert!(second.starts_with("b: unknown key `bad`"), "{second}");
}

#[test]
fn what_is_wrong_is_named_with_the_way_out() {
    for (text, expected) in [
        ("", "`name` is missing: every app needs one"),
        ("x = ", "TOML parse error"),
        ("{\"name\": ", "no JSON: EOF"),
        ("[1, 2]", "1 is no app: a table with its keys is wanted"),
        ("[]", "no app is in it"),
        ("name = 3\nrootfs = \"host:\"\ncommand = \"x\"", "`name` is 3: a text is wanted"),
        ("name = \"a b\"\nrootfs = \"host:\"\ncommand = \"x\"", "name \"a b\" may only contain"),
        ("name = \"a\"\ncommand = \"x\"", "rootfs: must not be empty"),
        ("name = \"a\"\nrootfs = \"host:\"", "action: must be given"),
        ("name = \"a\"\ninstance = 3", "unknown key `instance`: did you mean `instances`?"),
        ("name = \"a\"\nmemroy = 3", "unknown key `memroy`: did you mean `memory`?"),
        ("name = \"a\"\n[rollout]\ncanary = 1", "did you mean `canar"),
        (
            "name = \"a\"\nport = 1\ncheck = {htp = \"/\"}",
            "unknown key `check.htp`: did you mean `http`?",
        ),
        ("name = \"a\"\ncheck = {http = \"/\"}", "`check` has no port: give it `port`"),
        ("name = \"a\"\ncheck = 3", "`check` is 3: {http = \"/path\"}"),
        ("name = \"a\"\nmemory = \"2X\"", "`memory` is \"2X\": megabytes such as 64"),
        ("name = \"a\"\nmemory = -1", "`memory` is -1"),
        ("name = \"a\"\nmemory = 1\nmemory_mb = 1", "`memory` and `memory_mb` say the same"),
        ("name = \"a\"\nprocess_guid = \"b\"", "`name` and `process_guid` say the same"),
        ("name = \"a\"\nstart_timeout = 30", "`start_timeout` is 30: a text such as \"30s\""),
        ("name = \"a\"\nstrategy = \"blue\"", "`strategy` is \"blue\": \"rolling\" or"),
        ("name = \"a\"\nuser = \"u\"", "`user` goes with `command`"),
        ("name = \"a\"\ncommand = []", "`command` is []: a list such as"),
        ("name = \"a\"\ncommand = [1]", "`command` is [1]: a list such as"),
        ("name = \"a\"\nprivileged = true\ncommand = \"x\"", "`privileged` without `user`"),
        ("name = \"a\"\n[env]\nA = [1]", "`env.A` is [1]: a text or a number"),
        ("name = \"a\"\nannotation = 1979-05-27", "no key takes a date"),
        (
            "name = \"a\"\nrootfs = \"host:\"\ncommand = \"x\"\ninstances = -1",
            "instances: invalid value: integer `-1`",
        ),
        (
            "name = \"a\"\nrootfs = \"host:\"\ncommand = \"x\"\ninstances = 200000",
            "instances: is 200000, the limit is 100000",
        ),
        ("name = \"a\"\nrootfs = \"host:\"\nports = [70000]\ncommand = \"x\"", "ports[0]: "),
    ] {
        let said = refused(text);
        assert!(said.contains(expected), "{text:?}: {said}");
        let is_syntax = said.starts_with("no JSON");
        assert!(is_syntax || !said.contains("at line 1 column"), "{text:?}: {said}");
    }
}

#[test]
fn a_task_has_its_own_words() {
    let understood = |value: Value| {
        let Value::Object(map) = value else { panic!("no object") };
        task(map)
    };
    let good = understood(json!({
        "name": "t", "rootfs": "host:", "command": ["/a"], "memory": "1G", "result_file": "/r",
        "env": {"A": 1},
    }));
    let good = good.unwrap();
    assert_eq!(good.name.unwrap().as_str(), "t");
    assert_eq!((good.domain.as_str(), good.definition.memory_mb), (DOMAIN, 1024));
    for (value, expected) in [
        (json!({"rootfs": "host:", "command": "x", "ports": [1]}), "unknown key `ports`"),
        (json!({"rootfs": "host:"}), "action: must be given"),
        (json!({"name": "a b", "rootfs": "host:", "command": "x"}), "task_guid \"a b\" may only"),
        (json!({"name": 3}), "`name` is 3: a text is wanted"),
    ] {
        let said = understood(value).unwrap_err().message;
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn the_samples_and_the_examples_of_the_page_are_understood() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let mut count = 0;
    for entry in std::fs::read_dir(docs.join("samples")).unwrap() {
        let path = entry.unwrap().path();
        count += 1;
        if path.file_name().is_some_and(|name| name.to_string_lossy().contains("task")) {
            task(read_task(&path).unwrap())
                .unwrap_or_else(|it| panic!("{}: {it:?}", path.display()));
        } else {
            read_apps(&path).unwrap_or_else(|failure| panic!("{failure:?}"));
        }
    }
    assert!(count >= 5, "the samples are not where they were");
    let page = std::fs::read_to_string(docs.join("cli.md")).unwrap();
    let mut examples = 0;
    for block in page.split("```toml\n").skip(1) {
        let text = block.split("```").next().unwrap();
        apps(text, Some(Form::Toml)).unwrap_or_else(|failure| panic!("{failure:?}:\n{text}"));
        examples += 1;
    }
    assert!(examples > 0, "the page has no example");
    // Every short form is told of.
    for key in shorthand::COMMON.iter().chain(&shorthand::OF_APPS) {
        assert!(page.contains(&format!("`{key}`")), "docs/cli.md does not tell of `{key}`");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let failure = read_apps(Path::new("/nonexistent/app.toml")).unwrap_err();
    assert!(failure.message.starts_with("/nonexistent/app.toml: cannot read it"), "{failure:?}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.toml");
    std::fs::write(&path, "name = ").unwrap();
    let failure = read_apps(&path).unwrap_err();
    assert!(failure.message.starts_with(&path.display().to_string()), "{failure:?}");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(read_apps(&path).unwrap_err().message.contains("UTF-8"));
}

#[test]
fn what_is_cut_short_or_mixed_up_never_panics() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/samples");
    for entry in std::fs::read_dir(docs).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            drop(apps(&text[..at], None));
            drop(apps(&text[at..], None));
        }
        for (from, to) in
            [("\"", "3"), ("= ", "= {"), ("[", "[["), ("8080", "-1"), ("\n", "\n[x]\n")]
        {
            for (at, _) in text.match_indices(from) {
                let mixed = format!("{}{to}{}", &text[..at], &text[at + from.len()..]);
                drop(apps(&mixed, None));
                drop(apps(&mixed, Some(Form::Json)));
            }
        }
    }
    let deep = format!("{{\"name\": \"a\", \"routes\": {}1{}}}", "[".repeat(100), "]".repeat(100));
    assert!(apps(&deep, None).is_err());
    let deeper = "[".repeat(100_000);
    assert!(apps(&deeper, None).is_err() && apps(&deeper, Some(Form::Json)).is_err());
}
