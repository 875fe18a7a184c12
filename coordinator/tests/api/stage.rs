//! A whole coordinator on ports of its own, and a client.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use volvox_coordinator::config::CoordinatorConfig;
use volvox_coordinator::run::{self, Coordinator};

use crate::document;

/// How long anything may take before it counts as not happening.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A coordinator at work, until it is dropped.
pub(crate) struct Stage {
    pub(crate) folder: tempfile::TempDir,
    coordinator: Option<Coordinator>,
    runtime: tokio::runtime::Runtime,
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    document: Value,
    agent: ureq::Agent,
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) kind: String,
    pub(crate) headers: ureq::http::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl Stage {
    pub(crate) fn new() -> Stage {
        Stage::with("")
    }

    /// With these lines in its configuration, which must not be about listening.
    pub(crate) fn with(lines: &str) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        Stage::at(folder, lines)
    }

    pub(crate) fn at(folder: tempfile::TempDir, lines: &str) -> Stage {
        let mut stage = Stage::plain(folder, lines);
        stage.document = stage.send("GET", "/openapi.json", None, &[]).json();
        stage
    }

    /// Without a look at the document: for who speaks another way than our client.
    pub(crate) fn plain(folder: tempfile::TempDir, lines: &str) -> Stage {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        let coordinator = runtime.block_on(run::start(config(folder.path(), lines), None)).unwrap();
        let address = coordinator.addresses()[0];
        let token = std::fs::read_to_string(coordinator.admin_token()).unwrap().trim().to_owned();
        let agent = agent();
        Stage {
            folder,
            coordinator: Some(coordinator),
            runtime,
            address,
            token,
            document: Value::Null,
            agent,
        }
    }

    pub(crate) fn document(&self) -> &Value {
        &self.document
    }

    /// Stops it, and gives back its folder.
    pub(crate) fn stop(mut self) -> tempfile::TempDir {
        let coordinator = self.coordinator.take().unwrap();
        self.runtime.block_on(coordinator.stop());
        std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
    }

    /// Posts a body as the admin. The answer must be one that the document knows.
    pub(crate) fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, Some(body.to_string().as_bytes()), &[])
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None, &[])
    }

    /// Posts a body that must be taken.
    pub(crate) fn done(&self, path: &str, body: Value) -> Value {
        let answer = self.post(path, body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.json()
    }

    /// Sends what it is told, with the admin's token unless another `authorization` is among the
    /// headers, and holds the answer against the document.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let answer = self.send_unchecked(method, path, body, headers);
        if self.document.is_object() {
            self.check(method, path, &answer);
        }
        answer
    }

    pub(crate) fn send_unchecked(
        &self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let url = format!("http://{}{path}", self.address);
        let mut request = ureq::http::Request::builder().method(method).uri(url);
        if !headers.iter().any(|(name, _)| *name == "authorization") {
            request = request.header("authorization", format!("Bearer {}", self.token));
        }
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        let sent = match body {
            Some(body) => self.agent.run(request.body(body).unwrap()),
            None => self.agent.run(request.body(()).unwrap()),
        };
        let mut answer = sent.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        Answer {
            status: answer.status().as_u16(),
            kind: answer
                .headers()
                .get("content-type")
                .map(|kind| kind.to_str().unwrap().to_owned())
                .unwrap_or_default(),
            headers: answer.headers().clone(),
            text: answer.body_mut().with_config().limit(1 << 30).read_to_string().unwrap(),
        }
    }

    /// The document knows the path, the status, the content type and the form of the answer.
    fn check(&self, method: &str, path: &str, answer: &Answer) {
        let bare = path.split('?').next().unwrap();
        let operation = &self.document["paths"][bare][method.to_ascii_lowercase()];
        if operation.is_null() {
            assert!(matches!(answer.status, 404 | 405), "{method} {path} is not described");
            return;
        }
        let response = &operation["responses"][answer.status.to_string()];
        let (status, text) = (answer.status, &answer.text);
        assert!(response.is_object(), "{method} {path}: {status} is not described: {text}");
        if response["content"].is_null() {
            assert_eq!(answer.text, "", "{method} {path}: {status} has a body");
            return;
        }
        let content = &response["content"][answer.kind.as_str()];
        assert!(
            content.is_object(),
            "{method} {path}: {status} as {} is not described",
            answer.kind
        );
        if answer.kind == "application/json" {
            let faults = document::faults(&self.document, &content["schema"], &answer.json());
            assert!(faults.is_empty(), "{method} {path}: {faults:#?}");
        }
    }

    /// Makes a token with this role.
    pub(crate) fn token(&self, role: &str) -> String {
        use volvox_coordinator::api::access::TokenFile;
        let now = volvox_mesh::tls::config::system_clock()();
        let file = TokenFile::of(self.folder.path());
        file.create(now, role, role.parse().unwrap(), None).unwrap().0
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(coordinator) = self.coordinator.take() {
            self.runtime.block_on(coordinator.stop());
        }
    }
}

pub(crate) fn config(folder: &Path, lines: &str) -> CoordinatorConfig {
    let text = format!(
        "name = \"test\"\n\
         api.listen = [\"127.0.0.1:0\"]\n\
         mesh.listen = \"127.0.0.1:0\"\n\
         shutdown.grace_s = 2\n{lines}"
    );
    CoordinatorConfig::parse(&text, Some(folder)).unwrap()
}

pub(crate) fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_global(Some(PATIENCE))
        .allow_non_standard_methods(true)
        .proxy(None)
        .build()
        .new_agent()
}

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until something is so.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(LOOK);
    }
}

/// A desired LRP that is in order.
pub(crate) fn lrp(guid: &str, instances: u32) -> Value {
    json!({
        "process_guid": guid, "domain": "apps", "instances": instances, "rootfs": "host:",
        "log_guid": "log", "memory_mb": 64, "disk_mb": 32,
        "routes": {"cf-router": [{"hostnames": ["a.example"], "port": 8080}]},
        "metric_tags": {"source_id": {"static": "s"}},
        "action": {"run": {"path": "/bin/true", "user": "nobody"}},
    })
}

/// A task that is in order.
pub(crate) fn task(guid: &str) -> Value {
    json!({
        "task_guid": guid, "domain": "apps",
        "task_definition": {
            "rootfs": "host:", "action": {"run": {"path": "/bin/true", "user": "nobody"}},
        },
    })
}
