//! Compressing answers on their way.

use ginnel_api::remote::edges::modules::Compression;
use ginnel_http1::restore_strong_etags;
use ginnel_policy::compression::{ALL, ResponseCompression};

use crate::message::response_compression::compress_response;
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
            let ModuleInput::Request(mut request) = input else {
                return next.run(context, input).await;
            };
            // What the visitor takes, not what rules make of it.
            let compression =
                ResponseCompression::from_request(request.method(), request.headers(), ALL);
            restore_strong_etags(request.headers_mut());
            let response = next.run(context, ModuleInput::Request(request)).await?;
            Ok(compress_response(response, &compression).await)
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
