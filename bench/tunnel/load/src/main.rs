//! Makes load that wrk cannot make, and is the upstream of it.
//!
//! ```text
//! load upstream ADDRESS                    takes uploads, echoes messages of WebSockets
//! load ws ADDRESS CONNECTIONS SECONDS      messages of 64 bytes, one under way on each connection
//! load upload ADDRESS BYTES                one body
//! load rate ADDRESS CONNECTIONS SECONDS REQUESTS_PER_SECOND
//! ```
//!
//! Each prints one line of JSON. `rate` keeps to its rate whatever the answers do, and counts the time of a
//! request from when it was due, so that a server that stops for a while is seen by all who had come.

use std::error::Error;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What a message of the WebSocket row holds.
const MESSAGE_BYTES: usize = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["upstream", address] => serve(address).await,
        ["ws", address, connections, seconds] => {
            messages(address, connections.parse()?, seconds.parse()?).await
        }
        ["upload", address, bytes] => upload(address, bytes.parse()?).await,
        ["rate", address, connections, seconds, rate] => {
            at_rate(address, connections.parse()?, seconds.parse()?, rate.parse()?).await
        }
        _ => Err("see the top of src/main.rs".into()),
    }
}

/// One side of a connection.
struct Peer(BufReader<TcpStream>);

impl Peer {
    async fn to(address: &str) -> Outcome<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::with_capacity(64 << 10, stream)))
    }

    async fn say(&mut self, bytes: &[u8]) -> Outcome<()> {
        Ok(self.0.get_mut().write_all(bytes).await?)
    }

    /// The head of a message; empty at the end.
    async fn head(&mut self) -> Outcome<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head).await? == 0 {
                return Ok(String::new());
            }
        }
        Ok(head)
    }

    /// Reads so many bytes, and forgets them.
    async fn skip(&mut self, mut bytes: u64) -> Outcome<()> {
        while bytes > 0 {
            let there = self.0.fill_buf().await?.len();
            if there == 0 {
                return Err("it ended early".into());
            }
            let taken = there.min(usize::try_from(bytes)?);
            self.0.consume(taken);
            bytes -= taken as u64;
        }
        Ok(())
    }
}

fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    fields
        .into_iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

async fn serve(address: &str) -> Outcome<()> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            if let Err(error) = converse(Peer(BufReader::with_capacity(64 << 10, stream))).await {
                eprintln!("a connection broke: {error}");
            }
        });
    }
}

async fn converse(mut peer: Peer) -> Outcome<()> {
    loop {
        let head = peer.head().await?;
        if head.is_empty() {
            return Ok(());
        }
        if field(&head, "upgrade").is_some() {
            return echo(peer, &head).await;
        }
        if let Some(length) = field(&head, "content-length") {
            peer.skip(length.parse()?).await?;
        }
        peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await?;
    }
}

/// Sends back the payload of each message.
async fn echo(mut peer: Peer, head: &str) -> Outcome<()> {
    // Whoever checks it knows the key of RFC 6455, section 1.3.
    let accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
    let protocol = field(head, "sec-websocket-key").ok_or("no key")?;
    if protocol != "dGhlIHNhbXBsZSBub25jZQ==" {
        return Err("another key".into());
    }
    let switch = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    peer.say(switch.as_bytes()).await?;
    let mut frame = [0; 6 + MESSAGE_BYTES];
    loop {
        if peer.0.read_exact(&mut frame).await.is_err() {
            return Ok(());
        }
        let mut back = vec![frame[0], MESSAGE_BYTES as u8];
        let mask = [frame[2], frame[3], frame[4], frame[5]];
        back.extend(frame[6..].iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        peer.say(&back).await?;
    }
}

async fn messages(address: &str, connections: usize, seconds: f64) -> Outcome<()> {
    let mut tasks = JoinSet::new();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    for _ in 0..connections {
        let address = address.to_owned();
        tasks.spawn(async move {
            let mut peer = Peer::to(&address).await?;
            let head = format!(
                "GET /ws HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            );
            peer.say(head.as_bytes()).await?;
            if !peer.head().await?.starts_with("HTTP/1.1 101") {
                return Err("no WebSocket".into());
            }
            let mut frame = vec![0x82, 0x80 | MESSAGE_BYTES as u8, 1, 2, 3, 4];
            frame.resize(6 + MESSAGE_BYTES, b'x');
            let (mut back, mut times) = ([0; 2 + MESSAGE_BYTES], Vec::new());
            while Instant::now() < end {
                let begin = Instant::now();
                peer.say(&frame).await?;
                peer.0.read_exact(&mut back).await?;
                times.push(begin.elapsed());
            }
            Outcome::Ok(times)
        });
    }
    report(tasks, seconds).await
}

async fn upload(address: &str, bytes: u64) -> Outcome<()> {
    let mut peer = Peer::to(address).await?;
    let begin = Instant::now();
    let head = format!("PUT /up HTTP/1.1\r\nHost: {address}\r\nContent-Length: {bytes}\r\n\r\n");
    peer.say(head.as_bytes()).await?;
    let piece = vec![b'x'; 64 << 10];
    let mut left = bytes;
    while left > 0 {
        let next = left.min(piece.len() as u64);
        peer.say(&piece[..usize::try_from(next)?]).await?;
        left -= next;
    }
    let head = peer.head().await?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(format!("not taken: {head}").into());
    }
    let rate = bytes as f64 / 1e6 / begin.elapsed().as_secs_f64();
    println!("{{\"mbs\": {rate:.1}, \"n\": {}, \"errors\": 0}}", bytes as f64 / 1e9);
    Ok(())
}

/// Requests that are due at even times. Each connection has a thread, because the timers of the runtime count in
/// milliseconds.
async fn at_rate(address: &str, connections: usize, seconds: f64, rate: f64) -> Outcome<()> {
    let mut tasks = JoinSet::new();
    let begin = Instant::now() + Duration::from_millis(100);
    for connection in 0..connections {
        let address = address.to_owned();
        tasks.spawn_blocking(move || {
            let gap = connections as f64 / rate;
            let first = connection as f64 / rate;
            let due = |number: u64| begin + Duration::from_secs_f64(first + number as f64 * gap);
            times_of_due_requests(&address, (0..(seconds / gap) as u64).map(due))
        });
    }
    report(tasks, seconds).await
}

fn times_of_due_requests(
    address: &str,
    moments: impl Iterator<Item = Instant>,
) -> Outcome<Vec<Duration>> {
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let request = format!("GET /small HTTP/1.1\r\nHost: {address}\r\nUser-Agent: load\r\n\r\n");
    let (mut times, mut buffer) = (Vec::new(), [0; 4 << 10]);
    for due in moments {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        stream.write_all(request.as_bytes())?;
        let (mut there, mut length) = (0, usize::MAX);
        while there < length {
            let read = stream.read(&mut buffer[there..])?;
            if read == 0 {
                return Err("it ended early".into());
            }
            there += read;
            if let Some(end) = buffer[..there].windows(4).position(|four| four == b"\r\n\r\n") {
                let head = std::str::from_utf8(&buffer[..end])?;
                if !head.starts_with("HTTP/1.1 200") {
                    return Err(format!("refused: {head}").into());
                }
                length =
                    end + 4 + field(head, "content-length").ok_or("no length")?.parse::<usize>()?;
            }
        }
        times.push(due.elapsed());
    }
    Ok(times)
}

async fn report(mut tasks: JoinSet<Outcome<Vec<Duration>>>, seconds: f64) -> Outcome<()> {
    let (mut times, mut errors) = (Vec::new(), 0);
    while let Some(ended) = tasks.join_next().await {
        match ended? {
            Ok(more) => times.extend(more),
            Err(error) => {
                eprintln!("a connection broke: {error}");
                errors += 1;
            }
        }
    }
    times.sort_unstable();
    let at = |share: f64| {
        let place = (times.len() as f64 * share) as usize;
        times.get(place).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    };
    println!(
        "{{\"rate\": {:.1}, \"p50\": {:.1}, \"p99\": {:.1}, \"n\": {}, \"errors\": {errors}}}",
        times.len() as f64 / seconds,
        at(0.5),
        at(0.99),
        times.len()
    );
    Ok(())
}
