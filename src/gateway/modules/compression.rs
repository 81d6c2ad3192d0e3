//! Compressing answers on their way.

use http::Response;
use hyper::body::Body as _;

use crate::gateway::http::body::Body;
pub(crate) use crate::policy::compression::{ALL, Coding, Encoder, negotiate};
use crate::policy::compression::{announce, is_compressible};

/// Compresses an answer, if there is something that can be.
pub(crate) fn compress(mut response: Response<Body>, coding: Coding) -> Response<Body> {
    let (status, headers) = (response.status(), response.headers());
    if response.body().is_end_stream() || !is_compressible(status, headers) {
        return response;
    }
    announce(response.headers_mut(), coding);
    response.map(|body| body.encoded(Encoder::new(coding)))
}
