//! A folder as a local service: `file://` upstreams.
//!
//! It is not `tower_http::services::ServeDir`, which opens a file before it looks what that is: to open a
//! pipe waits until somebody writes to it, on a thread that others need, and a device may do anything. It
//! also follows links out of the folder, and has no listings. What a visitor asks of a file is decided in
//! `conditions`.

use std::fmt::Write as _;
use std::io;
#[cfg(unix)]
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use bytes::{Buf, BytesMut};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, DuplexStream};

use ginnel_http1::{Body, HeadWriter};

use super::conditions::{FileSelection, FileVersion};
use super::{media_type, page, relayed_head};

/// Everything in a link but the unreserved characters of RFC 3986.
const PATH_CHARS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Answers the requests of one connection from the files below a folder.
pub(super) async fn serve_files(folder: PathBuf, mut connection: DuplexStream) {
    let mut buffer = BytesMut::new();
    loop {
        let (request, head) = match relayed_head::take_request(&mut buffer) {
            Ok(Some(taken)) => taken,
            Ok(None) => match connection.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => continue,
            },
            Err(err) => {
                tracing::debug!(%err, "a request for a file is malformed");
                return;
            }
        };
        let is_read = request.is_head || is_get(&head);
        if !skip_body(request.body.clone(), &mut buffer, &mut connection).await {
            return;
        }
        let answered = if is_read {
            send_response(&folder, &request.target, &head, &mut connection).await
        } else {
            send_error(405, &mut connection).await
        };
        if answered.is_err() || !request.keep_alive {
            return;
        }
    }
}

/// Reads past the body of a request; false when it does not come to its end.
async fn skip_body(mut body: Body, buffer: &mut BytesMut, connection: &mut DuplexStream) -> bool {
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

async fn send_response(
    folder: &Path,
    target: &str,
    head: &[u8],
    connection: &mut DuplexStream,
) -> io::Result<()> {
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let Some(place) = resolve_path(folder, path) else {
        return send_error(404, connection).await;
    };
    let is_folder = tokio::fs::metadata(&place).await.is_ok_and(|it| it.is_dir());
    if !is_folder {
        return send_file(&place, head, connection).await;
    }
    if !path.ends_with('/') {
        let mut answer = Vec::new();
        let mut redirect = HeadWriter::begin_response(301, &mut answer);
        redirect
            .display_field("Location", format_args!("{path}/{query}"))
            .field("Content-Length", "0")
            .end();
        return connection.write_all(&answer).await;
    }
    let index = place.join("index.html");
    if tokio::fs::metadata(&index).await.is_ok_and(|it| !it.is_dir()) {
        return send_file(&index, head, connection).await;
    }
    let listing = list_folder(&place, path).await?;
    let mut answer = Vec::new();
    HeadWriter::begin_response(200, &mut answer)
        .field("Content-Type", "text/html; charset=utf-8")
        .display_field("Content-Length", listing.len())
        .end();
    connection.write_all(&answer).await?;
    if is_get(head) { connection.write_all(listing.as_bytes()).await } else { Ok(()) }
}

/// The place below the folder that a path names; none for paths that would leave it.
fn resolve_path(folder: &Path, path: &str) -> Option<PathBuf> {
    let decoded: Vec<u8> = percent_decode_str(path.strip_prefix('/')?).collect();
    let relative = relative_path(decoded)?;
    let inside = relative.components().all(|part| matches!(part, Component::Normal(_)));
    if !inside {
        return None;
    }
    let place = folder.join(relative).canonicalize().ok()?;
    // A link may lead out of the folder.
    place.starts_with(folder.canonicalize().ok()?).then_some(place)
}

/// Returns the path with these bytes. A name need not be UTF-8.
#[cfg(unix)]
fn relative_path(name: Vec<u8>) -> Option<PathBuf> {
    let name = std::ffi::OsString::from_vec(name);
    (!name.as_bytes().contains(&0)).then(|| name.into())
}

/// Returns the path with these bytes, which must be UTF-8.
#[cfg(not(unix))]
fn relative_path(name: Vec<u8>) -> Option<PathBuf> {
    String::from_utf8(name).ok().filter(|name| !name.contains(['\0', '\\'])).map(PathBuf::from)
}

/// Why nothing is sent of what a path names.
enum OpenError {
    /// It is a pipe, a socket or a device.
    NoFile,
    /// It is not there, or may not be read.
    Failed,
}

/// Opens a file, and says which it is; never waits for what is no file.
async fn open_file(place: &Path) -> Result<(File, FileVersion), OpenError> {
    // To open a pipe waits for somebody to write to it, and to open a device may do anything.
    let metadata = tokio::fs::metadata(place).await.map_err(|_| OpenError::Failed)?;
    if !metadata.is_file() {
        return Err(OpenError::NoFile);
    }
    let mut options = OpenOptions::new();
    // It may have become something else meanwhile.
    #[cfg(unix)]
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let file = options.read(true).open(place).await.map_err(|_| OpenError::Failed)?;
    let opened = file.metadata().await.map_err(|_| OpenError::Failed)?;
    if !opened.is_file() {
        return Err(OpenError::NoFile);
    }
    // Where the system knows no such time, there is none to tell.
    let version = FileVersion::new(opened.len(), opened.modified().ok());
    Ok((file, version))
}

async fn send_file(place: &Path, head: &[u8], connection: &mut DuplexStream) -> io::Result<()> {
    let (mut file, version) = match open_file(place).await {
        Ok(opened) => opened,
        Err(OpenError::NoFile) => return send_error(403, connection).await,
        Err(OpenError::Failed) => return send_error(404, connection).await,
    };
    let length = version.length;
    let (status, range, part) = match version.evaluate_conditions(head, is_get(head)) {
        FileSelection::Whole => (200, None, 0..length),
        FileSelection::Part(part) => {
            let range = format!("bytes {}-{}/{length}", part.start, part.end - 1);
            (206, Some(range), part)
        }
        FileSelection::NoPart => (416, Some(format!("bytes */{length}")), 0..0),
        FileSelection::OtherVersion => (412, None, 0..0),
        FileSelection::NotModified => {
            let mut answer = Vec::new();
            version.write_headers(&mut HeadWriter::begin_response(304, &mut answer)).end();
            return connection.write_all(&answer).await;
        }
    };
    let rest = part.end - part.start;
    let mut start = Vec::new();
    (&mut file).take(media_type::SNIFFED_BYTES).read_to_end(&mut start).await?;
    let mut answer = Vec::new();
    let mut writer = HeadWriter::begin_response(status, &mut answer);
    writer
        .field("Content-Type", media_type::media_type(place, &start))
        .display_field("Content-Length", rest);
    version.write_headers(writer.field("Accept-Ranges", "bytes"));
    if let Some(range) = range {
        writer.field("Content-Range", range);
    }
    writer.end();
    connection.write_all(&answer).await?;
    if is_get(head) {
        file.seek(io::SeekFrom::Start(part.start)).await?;
        // A file that shrinks meanwhile leaves the answer short, which closes the connection.
        let sent = tokio::io::copy(&mut file.take(rest), connection).await?;
        if sent < rest {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

fn is_get(head: &[u8]) -> bool {
    head.starts_with(b"GET ")
}

async fn send_error(status: u16, connection: &mut DuplexStream) -> io::Result<()> {
    let mut answer = Vec::new();
    HeadWriter::begin_response(status, &mut answer).field("Content-Length", "0").end();
    connection.write_all(&answer).await
}

async fn list_folder(folder: &Path, path: &str) -> io::Result<String> {
    let mut names = Vec::new();
    let mut entries = tokio::fs::read_dir(folder).await?;
    while let Some(entry) = entries.next_entry().await? {
        let slash = if entry.file_type().await?.is_dir() { "/" } else { "" };
        names.push((entry.file_name(), slash));
    }
    names.sort_unstable();
    let title = page::escape_html(path);
    let mut listing = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n\
         <h1>{title}</h1>\n<ul>\n"
    );
    for (name, slash) in names {
        let link = percent_encode(name.as_encoded_bytes(), PATH_CHARS);
        let text = page::escape_html(&name.to_string_lossy());
        // Writing to a string cannot fail.
        let _ = writeln!(listing, "<li><a href=\"./{link}{slash}\">{text}{slash}</a>");
    }
    listing.push_str("</ul>\n");
    Ok(listing)
}
