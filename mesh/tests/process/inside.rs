//! What a member process does: joins if it must, starts, tells what it hears, obeys its orders.

use std::io::{BufRead as _, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc};
use volvox_mesh::driver::{Mesh, MeshConfig, enrolment, join};
use volvox_mesh::identity::MemberKind;
use volvox_mesh::member::MemberEvent;
use volvox_mesh::profile::Profile;
use volvox_mesh::simulation::{sample_info, sample_load};
use volvox_mesh::tls::config::system_clock;
use volvox_mesh::tls::credentials::MemberFolder;
use volvox_mesh::tls::token::JoinToken;
use volvox_protocol::id::CellId;

use super::{Orders, open_authority};
use crate::stage::{Double, doubler};

/// How long a question of a test may take. It asks again.
const ASK: Duration = Duration::from_secs(3);

/// In a member process this does not return before its end. Otherwise it returns at once.
pub fn run_if_asked() {
    let Ok(orders) = std::env::var(super::ORDERS) else { return };
    let orders: Orders = serde_json::from_str(&orders).unwrap();
    // Ends the harness's unfinished line.
    say_text("");
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        say(&json!({ "panic": info.to_string() }));
        hook(info);
    }));
    let (lines, inbox) = mpsc::channel(64);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                break;
            }
        }
        // Whoever started us is gone.
        std::process::exit(0);
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    if let Err(error) = runtime.block_on(live(orders, inbox)) {
        say(&json!({"event": "failed", "error": error.to_string()}));
    }
}

fn say(line: &Value) {
    say_text(&line.to_string());
}

fn say_text(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever started us may be gone; then we end soon.
    let _heard = writeln!(out, "{line}").and_then(|()| out.flush());
}

type Failure = Box<dyn std::error::Error>;

async fn live(orders: Orders, mut inbox: mpsc::Receiver<String>) -> Result<(), Failure> {
    let name = CellId::new(&orders.name)?;
    if let Some(token) = &orders.token
        && MemberFolder::open(&orders.folder)?.load(system_clock()()).is_err()
    {
        let folder = MemberFolder::open(&orders.folder)?;
        join(&JoinToken::parse(token)?, MemberKind::Cell, &name, &folder).await?;
    }
    let path = orders.authority.as_ref();
    let authority = path.map(|path| open_authority(system_clock()(), path));
    let config = MeshConfig {
        folder: orders.folder.clone(),
        listen: orders.listen,
        advertise: None,
        profile: Profile::named(&orders.profile).unwrap(),
        seeds: orders.seeds,
        enrolment: authority.map(|authority| enrolment(Arc::new(Mutex::new(authority)))),
    };
    let router = doubler();
    let mesh = Mesh::start(config, router).await?;
    say(&json!({"event": "ready", "address": mesh.listens_at()}));
    let mut events = mesh.subscribe();
    loop {
        tokio::select! {
            event = events.recv() => tell(event),
            line = inbox.recv() => {
                let Some(line) = line else { return Ok(()) };
                let line: Value = serde_json::from_str(&line)?;
                let answer = obey(&mesh, &orders.folder, &line["order"]).await;
                let answer = answer.unwrap_or_else(|error| json!(error.to_string()));
                say(&json!({"id": line["id"], "answer": answer}));
            }
        }
    }
}

fn tell(event: Result<MemberEvent, broadcast::error::RecvError>) {
    match event {
        Ok(MemberEvent::Present { identity, address, .. }) => {
            say(&json!({"event": "present", "name": identity.name.as_str(), "address": address}));
        }
        Ok(MemberEvent::Missing { identity, left }) => {
            say(&json!({"event": "missing", "name": identity.name.as_str(), "left": left}));
        }
        Ok(MemberEvent::Moved(address)) => say(&json!({"event": "moved", "address": address})),
        Ok(MemberEvent::Expelled) => say(&json!({"event": "expelled"})),
        Ok(MemberEvent::Published(_) | MemberEvent::Revoked(_)) => {}
        Ok(MemberEvent::TooManyRevoked { .. }) => {}
        Err(error) => panic!("events were missed: {error}"),
    }
}

async fn obey(mesh: &Mesh, folder: &std::path::Path, order: &Value) -> Result<Value, Failure> {
    let me = mesh.me().name.clone();
    if let Some(free) = order["load"].as_u64() {
        mesh.publish_info(sample_info(me.clone(), 1)).await?;
        mesh.publish_load(sample_load(me, u32::try_from(free)?)).await?;
        return Ok(json!("said"));
    }
    if let Some(name) = order["ask"].as_str() {
        let members = mesh.members().await?;
        let whom = members.iter().find(|member| member.identity.name.as_str() == name);
        let whom = whom.ok_or_else(|| format!("{name} is not known"))?.identity.member;
        return Ok(json!(mesh.ask(whom, &Double(21), ASK).await?));
    }
    if order == "fill" {
        let mut file = std::fs::File::create(folder.join("ballast"))?;
        let error = loop {
            if let Err(error) = file.write_all(&[7; 512]) {
                break error;
            }
        };
        return Ok(json!(error.to_string()));
    }
    state(mesh).await
}

async fn state(mesh: &Mesh) -> Result<Value, Failure> {
    let members = mesh.members().await?;
    let name =
        |id| members.iter().find(|m| m.identity.member == id).map(|m| m.identity.name.as_str());
    let status = mesh.status().await?;
    let refused = status.refused;
    let members: Vec<Value> = members
        .iter()
        .map(|member| {
            json!({
                "name": member.identity.name.as_str(),
                "standing": format!("{:?}", member.state),
                "address": member.address,
                "load": member.load.as_ref().map(|load| load.free.memory_mb),
            })
        })
        .collect();
    let links = mesh.links();
    let links: Vec<Value> = links
        .iter()
        .map(|link| json!({"name": name(link.member), "at": link.address, "dialled": link.dialled}))
        .collect();
    let counters: serde_json::Map<String, Value> =
        status.transport.iter().map(|(name, count)| (name.to_owned(), json!(count))).collect();
    Ok(json!({
        "me": mesh.me().name.as_str(),
        "address": status.address,
        "members": members,
        "links": links,
        "health": status.health,
        "synced": status.synced,
        "counters": counters,
        "refused": {
            "malformed": status.malformed,
            "forged": refused.forged,
            "certificates": refused.certificates,
            "misreported": refused.misreported,
            "strangers": refused.strangers,
            "accusations": refused.suspicions,
            "excessive": refused.excessive,
            "unasked": refused.unasked,
        },
    }))
}
