//! Streams: messages of WebSockets and server-sent events in captured requests.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::support::{PATIENCE, Whole};

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A visitor and the local service, connected through a tunnel.
struct Talk {
    whole: Whole,
    visitor: TcpStream,
    local: TcpStream,
}

impl Talk {
    async fn start(request: &str, response: &str) -> Self {
        let whole = Whole::start().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let definition = json!({"name": "web", "proto": "http", "addr": port, "schemes": ["http"]});
        let (status, tunnel) = whole.start_tunnel(definition).await;
        assert_eq!(status, 201, "{tunnel}");
        let address = tunnel["public_url"].as_str().unwrap().replace("http://", "");
        let mut visitor = TcpStream::connect(&address).await.unwrap();
        visitor
            .write_all(request.replace("Host: x", &format!("Host: {address}")).as_bytes())
            .await
            .unwrap();
        let mut local = listener.accept().await.unwrap().0;
        until(&mut local, b"\r\n\r\n").await;
        local.write_all(response.as_bytes()).await.unwrap();
        until(&mut visitor, b"\r\n\r\n").await;
        Self { whole, visitor, local }
    }

    async fn record(&self) -> Value {
        self.whole.get("/api/requests/http?limit=1").await["requests"][0].clone()
    }

    /// The messages of the newest record, once there are so many.
    async fn messages(&self, count: usize) -> Vec<Value> {
        let id = self.record().await["id"].as_str().unwrap().to_owned();
        let path = format!("/api/requests/http/{id}/messages");
        let listing = async {
            loop {
                let listed = self.whole.get(&path).await;
                assert_eq!(listed["uri"], path);
                let messages = listed["messages"].as_array().unwrap().clone();
                if messages.len() == count {
                    return messages;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, listing).await.expect("so many messages in time")
    }
}

async fn until(stream: &mut TcpStream, end: &[u8]) {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        bytes.push(stream.read_u8().await.unwrap());
    }
}

fn shown(messages: &[Value]) -> Vec<[Value; 3]> {
    messages
        .iter()
        .map(|it| [it["sender"].clone(), it["kind"].clone(), it["data"].clone()])
        .collect()
}

#[tokio::test]
async fn messages_of_a_websocket_are_recorded_both_ways() {
    let mut talk = Talk::start(UPGRADE, SWITCHING).await;

    talk.visitor.write_all(b"\x81\x85\x01\x02\x03\x04igohn").await.unwrap();
    until(&mut talk.local, b"n").await;
    talk.local.write_all(b"\x82\x02\x00\xff\x89\x00").await.unwrap();
    until(&mut talk.visitor, b"\x89\x00").await;
    let messages = talk.messages(3).await;

    let expected =
        [("client", "text", "aGVsbG8="), ("server", "binary", "AP8="), ("server", "ping", "")];
    let expected = expected.map(|(sender, kind, data)| [json!(sender), json!(kind), json!(data)]);
    assert_eq!(shown(&messages), expected);
    let record = talk.record().await;
    assert_eq!((&record["stream"], &record["timings"]), (&json!("websocket"), &Value::Null));
    let id = record["id"].as_str().unwrap();
    let path = format!("/api/requests/http/{id}/messages?after=1&limit=1");
    assert_eq!(talk.whole.get(&path).await["messages"][0], messages[1]);
    let page = talk.whole.get(&format!("/inspect/data/requests/{id}/messages?since=2")).await;
    assert_eq!((&page["last"], &page["messages"][0]["kind"]), (&json!(3), &json!("ping")));
    let page = talk.whole.get("/inspect/data/requests").await["requests"][0].clone();
    assert_eq!((&page["stream"], &page["messages"]), (&json!("websocket"), &json!(3)));
    assert_eq!((&page["received"], &page["sent"]), (&json!(5), &json!(2)));
    talk.local.write_all(b"\x88\x05\x03\xe8bye").await.unwrap();
    let close = talk.messages(4).await[3].clone();
    assert_eq!((&close["code"], &close["data"]), (&json!(1000), &json!("Ynll")));
}

#[tokio::test]
async fn events_grow_while_they_come() {
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut talk = Talk::start("GET /events HTTP/1.1\r\nHost: x\r\n\r\n", head).await;

    talk.local.write_all(b"15\r\nid: 1\ndata: {\"a\":1}\n\n\r\n").await.unwrap();
    let first = talk.messages(1).await;
    talk.local.write_all(b"1d\r\nevent: sale\ndata: token=abc\n\n\r\n").await.unwrap();
    let both = talk.messages(2).await;

    assert_eq!((&both[0], &both[0]["event_id"]), (&first[0], &json!("1")));
    assert_eq!((&both[1]["event"], &both[1]["data"]), (&json!("sale"), &json!("dG9rZW49YWJj")));
    assert!(both[0]["time"].as_str().unwrap() <= both[1]["time"].as_str().unwrap());
    let record = talk.record().await;
    assert_eq!((&record["stream"], &record["duration"]), (&json!("events"), &json!(0)));
    let id = record["id"].as_str().unwrap();
    let page = talk.whole.get(&format!("/inspect/data/requests/{id}/messages")).await;
    assert!(!page.to_string().contains("abc"), "{page}");
    let page = talk.whole.get(&format!("/inspect/data/requests/{id}/messages?reveal=1")).await;
    assert_eq!(page["messages"][1]["text"], "token=abc");
}

#[tokio::test]
async fn the_parts_of_the_time_are_the_whole() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    assert_eq!(whole.visit(&url, "/").await.0, 200);

    let record = whole.get("/api/requests/http?limit=1").await["requests"][0].clone();

    let parts = ["waited", "connected", "first_byte", "body"];
    let parts = parts.map(|part| record["timings"][part].as_i64().unwrap());
    assert_eq!(Some(parts.iter().sum::<i64>()), record["duration"].as_i64(), "{record}");
    assert!(parts[1] > 0 && parts[2] > 0, "{parts:?}");
    let archive = whole.get("/inspect/data/export.har").await;
    let timings = &archive["log"]["entries"][0]["timings"];
    assert!(timings["wait"].as_f64().unwrap() > 0.0 && timings["connect"].as_f64().unwrap() > 0.0);
}
