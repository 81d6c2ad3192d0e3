//! Ten thousand requests, none of which gets the answer of another.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::support::{Whole, message};

const VISITORS: usize = 50;
const BATCHES: usize = 20;
/// Requests that a visitor sends before it reads an answer.
const BATCH: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_pipelined_requests_keep_their_answers() {
    let whole = Whole::start().await;
    let place = whole.web().await.trim_start_matches("http://").to_owned();
    let mut visitors = JoinSet::new();

    for visitor in 0..VISITORS {
        visitors.spawn(visit(place.clone(), visitor));
    }
    while let Some(done) = visitors.join_next().await {
        done.unwrap();
    }

    let listed = whole.agent.captures().list(usize::MAX, Some("web"));
    assert_eq!(listed.len(), VISITORS * BATCHES * BATCH);
    for record in listed {
        let exchange = record.lock_exchange();
        let [_, uri, _] = exchange.request.start_line();
        let answer = exchange.response.as_ref().expect("an answer").body.bytes();
        assert!(answer.starts_with(format!("POST {uri} ").as_bytes()), "{uri}");
        assert!(answer.ends_with(&exchange.request.body.bytes()), "{uri}");
    }
}

/// Sends batches of requests, and checks that each answer is that of its request.
async fn visit(place: String, visitor: usize) {
    let mut stream = TcpStream::connect(&place).await.unwrap();
    let mut buffer = Vec::new();
    for batch in 0..BATCHES {
        let ids: Vec<_> = (0..BATCH).map(|turn| format!("{visitor}-{batch}-{turn}")).collect();
        let asked: String = ids
            .iter()
            .map(|id| {
                let body = format!("body of {id}");
                format!(
                    "POST /{id} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                )
            })
            .collect();
        stream.write_all(asked.as_bytes()).await.unwrap();
        for id in ids {
            let answer = message(&mut stream, &mut buffer).await.expect("an answer");
            let answer = String::from_utf8(answer).unwrap();
            assert!(answer.contains(&format!("\r\n\r\nPOST /{id} HTTP/1.1\r\n")), "{answer}");
            assert!(answer.ends_with(&format!("\r\n\r\nbody of {id}")), "{answer}");
        }
    }
}
