//! Compressing answers on their way.

use http::{Method, Response};
use hyper::body::Body as _;

use ginnel_api::remote::edges::modules::Compression;
use ginnel_policy::compression::{
    ALL, Coding, Encoder, is_compressible, negotiate_coding, set_coding_headers,
};

use crate::message::response_body::ResponseBody;
use crate::modules::prelude::*;

/// Compresses answers in a coding that the visitor takes.
pub struct Compressor;

impl Module for Compressor {
    fn kind(&self) -> ModuleKind {
        ModuleKind::Compression
    }

    fn process_input<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        input: ModuleInput,
        next: NextModule<'a>,
    ) -> BoxFuture<'a, ModuleAnswer> {
        Box::pin(async move {
            // What the visitor takes, not what rules make of it.
            let coding = choose_coding(&input);
            let answer = next.run(context, input).await?;
            Ok(match coding {
                Some(coding) => compress_response(answer, coding),
                None => answer,
            })
        })
    }
}

impl BuildModule for Compression {
    fn build(self, _: &mut ModuleBuilder<'_>) -> ModuleResult<Option<Box<dyn Module>>> {
        Ok(Some(Box::new(Compressor)))
    }
}

impl EdgeModule for Compression {
    type Change = Self;

    fn check(change: Self, _: &ModuleChecker) -> ModuleResult<CheckedModule<Self>> {
        Ok(Self { enabled: change.enabled.or(Some(true)) }.into())
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }
}

fn choose_coding(input: &ModuleInput) -> Option<Coding> {
    match input {
        ModuleInput::Request(request) if request.method() != Method::HEAD => {
            negotiate_coding(request.headers(), ALL)
        }
        _ => None,
    }
}

/// Compresses an answer, if there is something that can be.
fn compress_response(
    mut response: Response<ResponseBody>,
    coding: Coding,
) -> Response<ResponseBody> {
    let (status, headers) = (response.status(), response.headers());
    if response.body().is_end_stream() || !is_compressible(status, headers) {
        return response;
    }
    set_coding_headers(response.headers_mut(), coding);
    response.map(|body| body.with_encoder(Encoder::new(coding)))
}
