//! Messages that the agent of an earlier commit sent, and how its service replied: agents and services of
//! that commit understand those of this one.
//!
//! Each file in `tests/data/protocol/<commit>` has a definition, the binds that the agent sent for it, and the
//! replies of a service that sees them in order. Files of certificates, and what differs from run to run, are
//! names that begin with `$`.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ginnel_agent::definition::{BindMessage, Definition};
use ginnel_gateway::GatewaySettings;
use ginnel_mux::protocol::message::{Bind, BindAnswer, decode_message};
use ginnel_mux::protocol::rpc;
use ginnel_mux::{MuxSession, Side};
use ginnel_service::{Options, Service};

use serde_json::{Map, Value};

use crate::agent::support::{PATIENCE, dial, log_in};
use crate::service::support::Folder;

/// What is recorded of one definition.
#[derive(serde::Deserialize)]
struct Recording {
    /// None if another program than ginnel sent the binds.
    definition: Option<Map<String, Value>>,
    binds: Vec<Value>,
    replies: Vec<Value>,
}

/// The recordings, with the names of their files.
fn recordings() -> Vec<(PathBuf, Recording)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/protocol/6d100ff8");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    let read = |path: PathBuf| {
        let recording = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        (path, recording)
    };
    files.into_iter().map(read).collect()
}

/// A certificate of this test and its key, as files and by their names in recordings.
struct Material {
    _folder: Folder,
    names: Vec<(&'static str, String)>,
}

impl Material {
    fn new() -> Self {
        let pair = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let folder = Folder::new();
        let mut names = Vec::new();
        let texts = [("crt", pair.cert.pem()), ("key", pair.signing_key.serialize_pem())];
        for ((file, text), (file_name, base64_name)) in
            texts.into_iter().zip([("$CRT_FILE", "$CRT_BASE64"), ("$KEY_FILE", "$KEY_BASE64")])
        {
            let path = folder.path.join(file);
            fs::write(&path, &text).unwrap();
            names.push((file_name, path.display().to_string()));
            names.push((base64_name, STANDARD.encode(text)));
        }
        Self { _folder: folder, names }
    }

    /// What a recorded value means in this test.
    fn filled<T: serde::Serialize + serde::de::DeserializeOwned>(&self, recorded: &T) -> T {
        let text = serde_json::to_string(recorded).unwrap();
        let fill = |text: String, (name, value): &(&str, String)| {
            text.replace(&format!("\"{name}\""), &format!("\"{value}\""))
        };
        serde_json::from_str(&self.names.iter().fold(text, fill)).unwrap()
    }

    /// What a value of this test is in recordings.
    fn recorded(&self, value: &Value) -> Value {
        let fill = |text: String, (name, value): &(&str, String)| text.replace(value, name);
        serde_json::from_str(&self.names.iter().fold(value.to_string(), fill)).unwrap()
    }
}

fn sent(definition: &Map<String, Value>) -> Vec<Value> {
    let definition = Definition::from_document(definition).unwrap();
    let sent = |message| match message {
        BindMessage::Endpoint(bind) => serde_json::to_value(*bind).unwrap(),
        BindMessage::Labeled(bind) => serde_json::to_value(bind).unwrap(),
    };
    definition.bind_messages().into_iter().map(sent).collect()
}

#[test]
fn agents_send_what_earlier_agents_sent() {
    let material = Material::new();

    for (path, recording) in recordings() {
        let Some(definition) = &recording.definition else { continue };

        let binds = sent(&material.filled(definition));

        let recorded = material.filled(&recording.binds);
        assert_eq!(binds, recorded, "{}", path.display());
    }
}

#[tokio::test]
async fn services_reply_to_earlier_agents_as_before() {
    let gateway = GatewaySettings { tls_endpoints: true, ..GatewaySettings::default() };
    let service = Service::start(Options { gateway, ..Options::default() });
    let service = service.await.unwrap();
    let (session, _incoming) = MuxSession::start(dial(&service).await, Side::Agent);
    log_in(&service, &session).await;
    let material = Material::new();

    for (path, recording) in recordings() {
        let binds = material.filled(&recording.binds);

        let replies = replies(&session, &material, &binds).await;

        assert_eq!(replies, recording.replies, "{}", path.display());
    }
}

async fn replies(session: &MuxSession, material: &Material, binds: &[Value]) -> Vec<Value> {
    let mut replies = Vec::new();
    for bind in binds {
        let bind: Bind = decode_message(bind.to_string().as_bytes()).unwrap();
        let reply = rpc::call(session, &bind, PATIENCE).await.unwrap();
        replies.push(material.recorded(&without_chance(reply)));
    }
    replies
}

/// A reply without what differs from run to run.
fn without_chance(mut reply: BindAnswer) -> Value {
    let random = |text: &mut String, name: &str| {
        if !text.is_empty() {
            name.clone_into(text);
        }
    };
    random(&mut reply.id, "$ID");
    if !reply.extra.token.is_empty() {
        reply.extra.token = "$TOKEN".into();
    }
    reply.extra.tunnel_id = reply.extra.tunnel_id.map(|_| "$TUNNEL".to_owned());
    let port = reply.url.rsplit(':').next().unwrap_or_default().to_owned();
    let mut reply = serde_json::to_value(&reply).unwrap();
    if !port.is_empty() {
        reply = serde_json::from_str(&reply.to_string().replace(&port, "$PORT")).unwrap();
    }
    reply
}
