//! A connection that costs next to nothing, to measure servers with.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A kept-alive connection.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects to `host:port`.
    pub async fn new(host: &str) -> Self {
        let stream = TcpStream::connect(host).await.expect("the server accepts");
        stream.set_nodelay(true).expect("a socket");
        Self { stream, buffer: vec![0; 1 << 20] }
    }

    /// Sends a request, and takes the answer's body.
    pub async fn call(&mut self, request: &[u8]) -> &[u8] {
        self.stream.write_all(request).await.expect("the server reads");
        let mut read = 0;
        loop {
            let more = self.stream.read(&mut self.buffer[read..]).await.expect("an answer");
            assert!(more > 0, "the server closed");
            read += more;
            let Some((start, length)) = body(&self.buffer[..read]) else { continue };
            if read >= start + length {
                return &self.buffer[start..start + length];
            }
        }
    }
}

/// Where the body starts and how long it is; none while the head is incomplete.
fn body(answer: &[u8]) -> Option<(usize, usize)> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).expect("text");
    assert!(head.starts_with("HTTP/1.1 2"), "{head}");
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    Some((end + 4, length.unwrap_or(0)))
}

/// The bytes of a request.
pub fn request(method: &str, path: &str, host: &str, key: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\n\
         service-version: 2\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The value in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
