//! Bodies that an action wants to see whole.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use hyper::body::Body;

/// What came of gathering a body.
pub enum BufferedBody {
    /// All of it, and the headers behind it.
    Whole(Bytes, HeaderMap),
    /// Its beginning: it is longer than the limit.
    Begun(Bytes),
}

/// Gathers a body, as long as it is not longer than `limit` bytes.
pub async fn gather_body<B>(body: &mut B, limit: usize) -> Result<BufferedBody, B::Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    loop {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        let trailers = match frame.transpose()?.map(hyper::body::Frame::into_data) {
            Some(Ok(data)) if all.is_empty() && first.is_empty() => {
                first = data;
                None
            }
            Some(Ok(data)) => {
                if all.is_empty() {
                    all.extend_from_slice(&first);
                }
                all.extend_from_slice(&data);
                None
            }
            Some(Err(frame)) => Some(frame.into_trailers().unwrap_or_default()),
            None => Some(HeaderMap::new()),
        };
        let length = first.len().max(all.len());
        if length <= limit && trailers.is_none() {
            continue;
        }
        let bytes = if all.is_empty() { first } else { all.freeze() };
        return Ok(match trailers {
            Some(trailers) => BufferedBody::Whole(bytes, trailers),
            None => BufferedBody::Begun(bytes),
        });
    }
}
