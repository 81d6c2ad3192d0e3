//! A proxy that makes a network of loopback: what it carries comes later, or without notifications.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What a node says to be notified, and what is said in its place: as long, and without effect.
const LISTEN: &[u8] = b"LISTEN ginnel_changes";
const DEAF: &[u8] = b"LISTEN ginnel_silence";

#[derive(Debug, Clone, Copy)]
pub struct Network {
    /// How much later everything comes, in each direction.
    pub delay: Duration,
    pub notifies: bool,
}

/// Starts a proxy to a port of this machine; gives its own port.
pub fn start(port: u16, network: Network) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(("127.0.0.1", port)).expect("the server");
            carry(
                client.try_clone().expect("a socket"),
                server.try_clone().expect("a socket"),
                network,
            );
            carry(server, client, network);
        }
    });
    address.port()
}

fn carry(mut from: TcpStream, mut to: TcpStream, network: Network) {
    to.set_nodelay(true).expect("a socket");
    let (sender, late) = mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 18];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            let mut bytes = buffer[..read].to_vec();
            if !network.notifies {
                deafen(&mut bytes);
            }
            if sender.send((Instant::now() + network.delay, bytes)).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        for (due, bytes) in late {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

fn deafen(bytes: &mut [u8]) {
    if let Some(at) = bytes.windows(LISTEN.len()).position(|window| window == LISTEN) {
        bytes[at..at + DEAF.len()].copy_from_slice(DEAF);
    }
}
