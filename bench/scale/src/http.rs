//! Connections that cost next to nothing, to measure servers with.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const BUFFER_BYTES: usize = 8 * 1024;

/// A kept connection.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// The status of a response, and where its body lies in the buffer.
struct Response {
    status: u16,
    start: usize,
    length: usize,
}

impl Connection {
    pub async fn new(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Sends bytes, whatever they are.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Sends a request and takes the response: its status and its body.
    pub async fn call(&mut self, request: &[u8]) -> io::Result<(u16, &[u8])> {
        self.send(request).await?;
        self.buffer.resize(BUFFER_BYTES, 0);
        let mut read = 0;
        loop {
            let more = self.stream.read(&mut self.buffer[read..]).await?;
            if more == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            read += more;
            if let Some(response) = response(&self.buffer[..read])
                && read >= response.start + response.length
            {
                let body = response.start..response.start + response.length;
                return Ok((response.status, &self.buffer[body]));
            }
            if read == self.buffer.len() {
                self.buffer.resize(read * 2, 0);
            }
        }
    }

    /// Whether the server has closed, or has said what nobody asked for.
    pub fn is_closed(&self) -> bool {
        let read = self.stream.try_read(&mut [0; 512]);
        !matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Gives back the memory of the last response: of many connections that rest, the buffers would
    /// be most of this process.
    pub fn rest(&mut self) {
        self.buffer = Vec::new();
    }
}

/// What a response begins with; none while the head is incomplete.
fn response(bytes: &[u8]) -> Option<Response> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let status = head.get(9..12)?.parse().ok()?;
    Some(Response { status, start: end + 4, length: length.unwrap_or(0) })
}

/// A request of a visitor.
pub fn get(host: &str, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").into_bytes()
}
