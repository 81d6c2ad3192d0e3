//! A folder as a local service: `file://` upstreams.

use std::fmt::Write as _;
use std::io;
use std::path::{Component, Path, PathBuf};

use bytes::{Buf, BytesMut};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::{head, page};
use crate::http1::Body;

/// Everything in a link but the unreserved characters of RFC 3986.
const PATH_CHARS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Answers the requests of one connection from the files below a folder.
pub(super) async fn serve(folder: PathBuf, mut connection: DuplexStream) {
    let mut buffer = BytesMut::new();
    loop {
        let (request, line) = match head::take_request(&mut buffer) {
            Ok(Some(taken)) => taken,
            Ok(None) => match connection.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => continue,
            },
            Err(_) => return,
        };
        let is_get = request.is_head || line.starts_with(b"GET ");
        if !skip(request.body.clone(), &mut buffer, &mut connection).await {
            return;
        }
        let path = request.target.split('?').next().unwrap_or_default();
        let answered = if is_get {
            answer(&folder, path, request.is_head, &mut connection).await
        } else {
            refuse(405, "Method Not Allowed", &mut connection).await
        };
        if answered.is_err() || !request.keep_alive {
            return;
        }
    }
}

/// Reads past the body of a request; false when it does not come to its end.
async fn skip(mut body: Body, buffer: &mut BytesMut, connection: &mut DuplexStream) -> bool {
    loop {
        let Ok(taken) = body.take(buffer, |_| {}) else { return false };
        buffer.advance(taken);
        if body.is_done() {
            return true;
        }
        if !matches!(connection.read_buf(buffer).await, Ok(1..)) {
            return false;
        }
    }
}

async fn answer(
    folder: &Path,
    path: &str,
    is_head: bool,
    connection: &mut DuplexStream,
) -> io::Result<()> {
    let Some(place) = resolve(folder, path) else {
        return refuse(404, "Not Found", connection).await;
    };
    let is_folder = tokio::fs::metadata(&place).await.is_ok_and(|it| it.is_dir());
    if !is_folder {
        return send_file(&place, is_head, connection).await;
    }
    if !path.ends_with('/') {
        let head = format!(
            "HTTP/1.1 301 Moved Permanently\r\nLocation: {path}/\r\nContent-Length: 0\r\n\r\n"
        );
        return connection.write_all(head.as_bytes()).await;
    }
    let index = place.join("index.html");
    if tokio::fs::metadata(&index).await.is_ok_and(|it| !it.is_dir()) {
        return send_file(&index, is_head, connection).await;
    }
    let listing = list(&place, path).await?;
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\r\n",
        listing.len()
    );
    connection.write_all(head.as_bytes()).await?;
    if is_head { Ok(()) } else { connection.write_all(listing.as_bytes()).await }
}

/// The place below the folder that a path names; none for paths that would leave it.
fn resolve(folder: &Path, path: &str) -> Option<PathBuf> {
    let decoded = percent_decode_str(path.strip_prefix('/')?).decode_utf8().ok()?;
    if decoded.contains(['\0', '\\']) {
        return None;
    }
    let relative = Path::new(decoded.as_ref());
    let inside = relative.components().all(|part| matches!(part, Component::Normal(_)));
    if !inside {
        return None;
    }
    let place = folder.join(relative).canonicalize().ok()?;
    // A link may lead out of the folder.
    place.starts_with(folder.canonicalize().ok()?).then_some(place)
}

/// Why nothing is sent of what a path names.
enum OpenError {
    /// It is a pipe, a socket or a device.
    NoFile,
    /// It is not there, or may not be read.
    Failed,
}

/// Opens a file, and says how long it is; never waits for what is no file.
async fn open(place: &Path) -> Result<(File, u64), OpenError> {
    // To open a pipe waits for somebody to write to it, and to open a device may do anything.
    let metadata = tokio::fs::metadata(place).await.map_err(|_| OpenError::Failed)?;
    if !metadata.is_file() {
        return Err(OpenError::NoFile);
    }
    let mut options = OpenOptions::new();
    // It may have become something else meanwhile.
    #[cfg(unix)]
    options.custom_flags(libc::O_NONBLOCK);
    let file = options.read(true).open(place).await.map_err(|_| OpenError::Failed)?;
    let opened = file.metadata().await.map_err(|_| OpenError::Failed)?;
    if opened.is_file() { Ok((file, opened.len())) } else { Err(OpenError::NoFile) }
}

async fn send_file(place: &Path, is_head: bool, connection: &mut DuplexStream) -> io::Result<()> {
    let (file, length) = match open(place).await {
        Ok(opened) => opened,
        Err(OpenError::NoFile) => return refuse(403, "Forbidden", connection).await,
        Err(OpenError::Failed) => return refuse(404, "Not Found", connection).await,
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nContent-Length: {length}\r\n\r\n",
        media_type(place)
    );
    connection.write_all(head.as_bytes()).await?;
    if !is_head {
        // A file that shrinks meanwhile leaves the answer short, which closes the connection.
        let sent = tokio::io::copy(&mut file.take(length), connection).await?;
        if sent < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

async fn refuse(status: u16, reason: &str, connection: &mut DuplexStream) -> io::Result<()> {
    let head = format!("HTTP/1.1 {status} {reason}\r\nContent-Length: 0\r\n\r\n");
    connection.write_all(head.as_bytes()).await
}

async fn list(folder: &Path, path: &str) -> io::Result<String> {
    let mut names = Vec::new();
    let mut entries = tokio::fs::read_dir(folder).await?;
    while let Some(entry) = entries.next_entry().await? {
        let slash = if entry.file_type().await?.is_dir() { "/" } else { "" };
        names.push(format!("{}{slash}", entry.file_name().to_string_lossy()));
    }
    names.sort_unstable();
    let title = page::escape(path);
    let mut listing = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n\
         <h1>{title}</h1>\n<ul>\n"
    );
    for name in names {
        let bare = name.trim_end_matches('/');
        let slash = &name[bare.len()..];
        let link = utf8_percent_encode(bare, PATH_CHARS);
        // Writing to a string cannot fail.
        let _ = writeln!(listing, "<li><a href=\"./{link}{slash}\">{}</a>", page::escape(&name));
    }
    listing.push_str("</ul>\n");
    Ok(listing)
}

fn media_type(place: &Path) -> &'static str {
    let extension = place.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" | "map" => "application/json",
        "txt" | "md" | "log" => "text/plain; charset=utf-8",
        "xml" => "application/xml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "pdf" => "application/pdf",
        "wasm" => "application/wasm",
        "woff2" => "font/woff2",
        "mp4" => "video/mp4",
        "zip" => "application/zip",
        _ => "application/octet-stream",
    }
}
