//! Local services that behave badly: what visitors get, and what is captured.

use std::sync::Arc;
use std::time::Duration;

use ginnel_agent::SessionState;
use ginnel_agent::capture::CaptureRecord;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::support::{PATIENCE, Whole, message};

/// What a local service does, by the path that is asked for.
const SPOILED: &[(&str, &str)] = &[
    ("/nothing", ""),
    ("/half-a-head", "HTTP/1.1 200 OK\r\nContent-Le"),
    ("/no-end-of-head", "HTTP/1.1 200 OK\r\nA: b\r\n"),
    ("/no-http", "SSH-2.0-OpenSSH_9.6\r\n\r\n"),
    ("/two-lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
    ("/provisional-only", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
    ("/switches-unasked", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"),
    ("/bad-chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nx\r\n"),
];
/// Answers that break off: what was right of the body.
const CUT: &[(&str, &str, &str)] = &[
    ("/half-a-body", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", "ab"),
    ("/half-a-chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nab", "ab"),
    ("/no-last-chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", "ab"),
];
const GOOD: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
    HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";
const ENDLESS: &[(&str, &str, &str)] = &[
    ("/endless-headers", "HTTP/1.1 200 OK\r\n", "A: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n"),
    ("/endless-provisional", "", "HTTP/1.1 102 Processing\r\n\r\n"),
];

/// A tunnel to a local service that behaves as its paths say; the connections that hang.
async fn start() -> (Whole, String, mpsc::UnboundedReceiver<TcpStream>) {
    let whole = Whole::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (hang, hanging) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(behave(stream, hang.clone()));
        }
    });
    let (status, tunnel) =
        whole.start_tunnel(json!({"name": "bad", "proto": "http", "addr": port})).await;
    assert_eq!(status, 201, "{tunnel}");
    (whole, tunnel["public_url"].as_str().unwrap().to_owned(), hanging)
}

async fn behave(mut stream: TcpStream, hang: mpsc::UnboundedSender<TcpStream>) {
    let Some(request) = message(&mut stream, &mut Vec::new()).await else { return };
    let request = String::from_utf8(request).unwrap();
    let path = request.split(' ').nth(1).unwrap();
    let spoiled = SPOILED.iter().find(|(at, _)| *at == path).map(|(_, bytes)| *bytes);
    let cut = CUT.iter().find(|(at, ..)| *at == path).map(|(_, bytes, _)| *bytes);
    let endless = ENDLESS.iter().find(|(at, ..)| *at == path);
    let bytes = spoiled.or(cut).or(endless.map(|(_, first, _)| *first)).unwrap_or(GOOD);
    if path == "/silence" {
        hang.send(stream).unwrap();
        return;
    }
    stream.write_all(bytes.as_bytes()).await.unwrap();
    if let Some((_, _, again)) = endless {
        // Until nobody reads any more.
        while stream.write_all(again.as_bytes()).await.is_ok() {}
    }
}

/// The record of the last request, once its exchange has ended.
async fn ended(whole: &Whole) -> Arc<CaptureRecord> {
    let record = whole.agent.captures().list(1, None).remove(0);
    let end = async {
        while record.lock_exchange().took.is_none() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, end).await.expect("an end");
    record
}

/// After whatever happened, everything works.
async fn all_is_well(whole: &Whole, url: &str) {
    assert!(matches!(whole.agent.session_state(), SessionState::Online(_)));
    let answer = whole.http.get(format!("{url}/good")).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "good");
    let captured = ended(whole).await.to_captured_request().response.unwrap();
    assert_eq!((captured.status_code, captured.raw.0.ends_with(b"good")), (200, true));
    assert_eq!(whole.agent.reconnect_count(), 0);
}

#[tokio::test]
async fn an_answer_that_is_none_is_a_502_with_a_record() {
    let (whole, url, _hanging) = start().await;
    let endless = ENDLESS.iter().map(|(path, ..)| path);

    for path in SPOILED.iter().map(|(path, _)| path).chain(endless) {
        let asked = whole.http.get(format!("{url}{path}")).send();
        let answer = timeout(PATIENCE, asked).await.expect(path).unwrap();

        assert_eq!(answer.status(), 502, "{path}");
        let page = answer.text().await.unwrap();
        assert!(page.contains("ERR_NGROK_8012"), "{path}: {page}");
        let captured = ended(&whole).await.to_captured_request();
        assert_eq!(captured.request.uri, *path);
        assert_eq!(captured.response.unwrap().status, "502 Bad Gateway", "{path}");
        all_is_well(&whole, &url).await;
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_breaks_off_for_the_visitor_too() {
    let (whole, url, _hanging) = start().await;

    for (path, _, right) in CUT {
        // It may break off before the head is on its way.
        if let Ok(answer) = whole.http.get(format!("{url}{path}")).send().await {
            assert_eq!(answer.status(), 200, "{path}");
            assert!(answer.bytes().await.is_err(), "{path} looks complete");
        }
        let record = ended(&whole).await;
        let exchange = record.lock_exchange().clone();
        assert_eq!(&*exchange.response.unwrap().body.bytes(), right.as_bytes(), "{path}");
        all_is_well(&whole, &url).await;
    }
}

#[tokio::test]
async fn a_local_service_that_hangs_is_let_go_with_its_visitor() {
    let (whole, url, mut hanging) = start().await;

    let asked = whole.http.get(format!("{url}/silence"));
    let asked = tokio::spawn(asked.send());
    let mut local = timeout(PATIENCE, hanging.recv()).await.unwrap().unwrap();
    let captured = whole.agent.captures().list(1, None).remove(0).to_captured_request();
    assert_eq!((captured.response, captured.duration), (None, 0));
    all_is_well_elsewhere(&whole, &url).await;
    // A FIN right behind a request only ends the requests of its visitor.
    sleep(Duration::from_millis(400)).await;
    asked.abort();

    assert_eq!(timeout(PATIENCE, local.read(&mut [0])).await.unwrap().unwrap(), 0);
    let record = whole.agent.captures().list(9, None).pop().unwrap();
    let end = async {
        while record.lock_exchange().took.is_none() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, end).await.expect("an end");
    assert!(record.to_captured_request().response.is_none());
}

/// Others are served while one hangs.
async fn all_is_well_elsewhere(whole: &Whole, url: &str) {
    let answer = whole.http.get(format!("{url}/good")).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "good");
}
