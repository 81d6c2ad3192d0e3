//! Compression of responses on their way to visitors, for the module and for rules.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, response};
use hyper::body::{Body as _, Frame};

use ginnel_base::logging::or_debug;
use ginnel_policy::compression::{Coding, ResponseCompression, SAMPLE_BYTES, announced_length};

use crate::message::body::BodyError;
use crate::message::response_body::ResponseBody;

/// How long the first bytes of a body are waited for, which show if it is tiny and if it shrinks.
const BEGINNING_TIMEOUT: Duration = Duration::from_millis(5);

/// Compresses a response if the visitor accepts it and the body gets shorter, and marks it if another visitor could get it
/// compressed.
pub async fn compress_response(
    response: Response<ResponseBody>,
    compression: &ResponseCompression,
) -> Response<ResponseBody> {
    let (mut head, mut body) = response.into_parts();
    if let Some(bytes) = body.take_full() {
        let made = compression.compress_whole(&mut head, &bytes);
        let coded = or_debug!(made, "cannot compress a response").flatten();
        body.set_full(coded.map_or(bytes, |coded| coded.bytes));
    } else if compression.is_to_head() {
        compression.compress_head(&mut head);
    } else {
        let length = body.size_hint().exact().or_else(|| announced_length(&head.headers));
        if let Some(coding) = compression.prepare_head(&mut head, length) {
            body = compress_body(body, coding, &mut head, compression).await;
        }
    }
    Response::from_parts(head, body)
}

/// Compresses a body on its way, unless its beginning shows that it does not get shorter.
async fn compress_body(
    mut body: ResponseBody,
    coding: Coding,
    head: &mut response::Parts,
    compression: &ResponseCompression,
) -> ResponseBody {
    let mut beginning = Beginning::read_from(&mut body).await;
    if let Some(error) = beginning.error.take() {
        body.set_failed(error);
    }
    if beginning.is_whole && beginning.trailers.is_none() {
        let bytes = beginning.bytes();
        let made = compression.compress_whole(head, &bytes);
        let coded = or_debug!(made, "cannot compress a response").flatten();
        body.set_full(coded.map_or(bytes, |coded| coded.bytes));
        return body;
    }
    let begun = compression.begin_stream(coding, &mut head.headers, &beginning.bytes());
    body.put_back(beginning.into_frames());
    match or_debug!(begun, "cannot compress a response").flatten() {
        Some(encoder) => body.with_encoder(encoder),
        None => body,
    }
}

/// The frames at the beginning of a body.
#[derive(Default)]
struct Beginning {
    pieces: Vec<Bytes>,
    trailers: Option<HeaderMap>,
    /// The error with which the body broke off.
    error: Option<BodyError>,
    /// If true, the body has no other frames.
    is_whole: bool,
}

impl Beginning {
    /// Reads frames until there is enough to judge the body, the body ends, or it pauses.
    async fn read_from(body: &mut ResponseBody) -> Self {
        let mut beginning = Self::default();
        let reading = async {
            let mut length = 0;
            while length < SAMPLE_BYTES && !beginning.is_whole {
                match poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(piece) => {
                            length += piece.len();
                            beginning.pieces.push(piece);
                        }
                        Err(frame) => {
                            beginning.trailers = frame.into_trailers().ok();
                            beginning.is_whole = true;
                        }
                    },
                    Some(Err(error)) => {
                        beginning.error = Some(error);
                        return;
                    }
                    None => beginning.is_whole = true,
                }
            }
        };
        let pause = tokio::time::timeout(BEGINNING_TIMEOUT, reading).await.err();
        pause.inspect(|_| tracing::trace!("a body paused and is judged by its first bytes"));
        beginning
    }

    fn bytes(&self) -> Bytes {
        match self.pieces.as_slice() {
            [piece] => piece.clone(),
            pieces => pieces.concat().into(),
        }
    }

    fn into_frames(self) -> VecDeque<Frame<Bytes>> {
        let trailers = self.trailers.map(Frame::trailers);
        self.pieces.into_iter().map(Frame::data).chain(trailers).collect()
    }
}
