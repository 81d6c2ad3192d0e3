//! The multiplexer of ginnel alone, beside plain TLS: two processes on loopback, TLS 1.3.
//!
//!     mux [--rounds N] [--only bulk,bulk32,open,rate,idle]
//!
//! Each round visits all tests; the table gives the medians.

mod client;
mod measure;
mod peer;
mod tls;

use std::io::{BufRead, BufReader, Error, Result};
use std::process::{Child, Command, Stdio};

use measure::{Row, TESTS};

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "serve") {
        return peer::serve().await;
    }
    let rounds = option(&words, "--rounds").map_or(7, |text| text.parse().expect("a number"));
    let only = option(&words, "--only").unwrap_or_else(|| TESTS.join(","));
    let (mut child, port) = start_peer()?;
    let mut rows = Vec::<Row>::new();
    for _ in 0..rounds {
        for test in only.split(',') {
            measure::run(test, port, child.id(), &mut rows).await?;
        }
    }
    child.kill()?;
    for row in &mut rows {
        println!("{row}");
    }
    Ok(())
}

fn option(words: &[String], name: &str) -> Option<String> {
    let at = words.iter().position(|word| word == name)?;
    words.get(at + 1).cloned()
}

/// Starts the other process, which says where it listens.
fn start_peer() -> Result<(Child, u16)> {
    let mut child =
        Command::new(std::env::current_exe()?).arg("serve").stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().ok_or_else(|| Error::other("no output"))?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    Ok((child, line.trim().parse().map_err(Error::other)?))
}
