//! Why a visitor with or without a token is turned away.

use http::header::WWW_AUTHENTICATE;
use http::{HeaderValue, StatusCode};

use super::super::super::verdict::LocalResponse;

/// Why a visitor is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JwtRejection {
    status: StatusCode,
    pub code: u16,
    pub sentence: &'static str,
}

macro_rules! refusals {
    ($( $name:ident = $status:ident, $code:literal, $sentence:literal; )+) => {
        $(
            pub(super) const $name: JwtRejection =
                JwtRejection { status: StatusCode::$status, code: $code, sentence: $sentence };
        )+
    };
}

refusals! {
    SEVERAL = BAD_REQUEST, 3416, "The request carries more than one token.";
    SIGNATURE = UNAUTHORIZED, 3401, "The token has an invalid signature, has expired, or is not valid yet.";
    CLAIM = FORBIDDEN, 3403, "The issuer or the audience of the token is not accepted.";
    MISSING = UNAUTHORIZED, 3406, "A token is required.";
    HEADER = UNAUTHORIZED, 3408, "A header with a token is required.";
    JSON = BAD_REQUEST, 3411, "The body is not JSON.";
    FORM = BAD_REQUEST, 3412, "The body is not a form.";
    PREFIX = UNAUTHORIZED, 3413, "The token lacks its prefix.";
    TYPE = BAD_REQUEST, 3414, "The body is neither JSON nor a form.";
    METHOD = BAD_REQUEST, 3415, "The method has no body to carry a token.";
    MALFORMED = UNAUTHORIZED, 3416, "The token is malformed.";
    UNREACHABLE = BAD_GATEWAY, 3422, "The keys of the issuer cannot be fetched.";
}

impl JwtRejection {
    pub(super) fn to_response(self) -> LocalResponse {
        let mut answer = LocalResponse::refusal(self.status, self.code, self.sentence);
        if self.status == StatusCode::UNAUTHORIZED {
            answer.headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}
