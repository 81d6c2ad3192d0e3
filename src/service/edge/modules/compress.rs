//! Compressing answers on their way.

use http::Response;
use hyper::body::Body as _;

pub(in crate::service::edge) use crate::policy::compression::{ALL, Coding, Encoder, negotiate};
use crate::policy::compression::{announce, is_compressible};
use crate::service::edge::body::Body;

/// Compresses an answer, if there is something that can be.
pub(in crate::service::edge) fn compress(
    mut response: Response<Body>,
    coding: Coding,
) -> Response<Body> {
    let (status, headers) = (response.status(), response.headers());
    if response.body().is_end_stream() || !is_compressible(status, headers) {
        return response;
    }
    announce(response.headers_mut(), coding);
    response.map(|body| body.encoded(Encoder::new(coding)))
}
