//! Heads of answers on the fast path; free of I/O.

use http::header::DATE;

use ginnel_http1::{
    self as http1, Body, HeadError, HeadField, HeadProgress, HeadWriter, MediaType, ResponseHead,
    ResponseHeadReader, is_hop_by_hop, list_elements,
};

use crate::message::error_response::{self, ERROR_CODE, ErrorResponse};
use crate::message::node_notice::NodeNotice;
use crate::server::response_writer::current_date;
use crate::upstream::target::Target;

/// The head of an answer, read.
#[derive(Debug)]
pub struct FastPathResponse {
    /// How many bytes it has.
    pub length: usize,
    pub status: u16,
    pub body: Body,
    /// Whether the connection may carry another request.
    pub keeps_alive: bool,
    /// If true, pauses of the upstream in the body are limited.
    pub has_stall_limit: bool,
    /// What another node says beside it.
    pub notice: Option<NodeNotice>,
}

/// What an answer turns into on its way.
#[derive(Debug, Clone, Copy)]
pub struct ResponseOptions<'t> {
    /// The answer is to a HEAD, and has no body.
    pub to_head: bool,
    /// The visitor's connection closes afterwards.
    pub closes: bool,
    /// What stands before the number of a code.
    pub code_prefix: &'t str,
    /// Whose answer it is.
    pub source: ResponseSource,
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseSource {
    /// A server, or the service itself: codes are for the service to give.
    Server,
    /// An agent, which may say that it cannot reach what it forwards to.
    Agent,
    /// Another node, which speaks for the service.
    Node,
}

impl ResponseSource {
    /// Who answers for a target.
    pub fn from_target(target: &dyn Target) -> Self {
        match (target.is_agent(), target.is_node()) {
            (true, _) => Self::Agent,
            (_, true) => Self::Node,
            _ => Self::Server,
        }
    }
}

/// Reads the next head of an answer, and writes the final one as the visitor gets it.
pub fn rewrite_response_head(
    reader: &mut ResponseHeadReader,
    bytes: &mut [u8],
    options: ResponseOptions<'_>,
    out: &mut Vec<u8>,
) -> Result<HeadProgress<FastPathResponse>, HeadError> {
    reader.read_next(bytes, |head| write_response_head(head, options, out))
}

fn write_response_head(
    head: &ResponseHead<'_, '_>,
    options: ResponseOptions<'_>,
    out: &mut Vec<u8>,
) -> FastPathResponse {
    let framing = ResponseHeadFacts::from_headers(head.fields);
    let (length, status, body) = (head.bytes.len(), head.status, head.body.clone());
    let notice = framing.notice.filter(|_| options.source == ResponseSource::Node);
    let has_stall_limit = !framing.is_endless && body != Body::UntilClose;
    let keeps_alive = head.keeps_alive;
    let answer = FastPathResponse { length, status, body, keeps_alive, has_stall_limit, notice };
    let body = &answer.body;
    let mut writer = HeadWriter::begin_response_with(true, status, head.reason.as_bytes(), out);
    let has_body = *body != Body::NONE;
    for header in head
        .fields
        .iter()
        .filter(|header| !framing.drops_header(header, status, has_body, options.source))
    {
        writer.field(header.name, header.value);
    }
    if !framing.dated {
        writer.display_field(DATE, current_date());
    }
    if status == 502 && framing.unreachable && options.source == ResponseSource::Agent {
        write_code(error_response::UNREACHABLE.number, options.code_prefix, &mut writer);
    }
    if *body == Body::UntilClose {
        writer.field("transfer-encoding", "chunked");
    }
    write_end(options.closes, writer);
    answer
}

/// Facts from the headers of a response, besides its framing.
#[derive(Default)]
struct ResponseHeadFacts<'h> {
    dated: bool,
    /// If true, the body may pause for any time.
    is_endless: bool,
    /// The headers that `Connection` names.
    named: Vec<&'h [u8]>,
    unreachable: bool,
    notice: Option<NodeNotice>,
}

impl<'h> ResponseHeadFacts<'h> {
    fn from_headers(headers: &[HeadField<'h>]) -> Self {
        let mut framing = Self::default();
        for header in headers {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            match header.name.len() {
                4 if is("date") => framing.dated = true,
                12 if is("content-type") => {
                    framing.is_endless |= MediaType::from_value(header.value).is_endless();
                }
                10 if is("connection") => framing.read_connection(header.value),
                16 if is(ERROR_CODE.as_str()) => {
                    framing.unreachable = header.value.ends_with(b"8012");
                }
                _ => {}
            }
        }
        framing
    }

    fn read_connection(&mut self, value: &'h [u8]) {
        self.notice = self.notice.or_else(|| NodeNotice::from_connection(value));
        self.named.extend(list_elements(value).filter(|name| http1::may_be_named(name)));
    }

    /// Whether a header does not go on: it concerns one connection, or is for the service to say.
    fn drops_header(
        &self,
        header: &HeadField<'_>,
        status: u16,
        has_body: bool,
        source: ResponseSource,
    ) -> bool {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        match header.name.len() {
            14 if is("content-length") => status == 204,
            16 if is(ERROR_CODE.as_str()) => source != ResponseSource::Node,
            17 if is("transfer-encoding") => !has_body,
            18 if is("proxy-authenticate") => true,
            _ => is_hop_by_hop(header.name) || self.names_header(header.name),
        }
    }

    /// Whether `Connection` names a header.
    fn names_header(&self, name: &str) -> bool {
        self.named.iter().any(|named| named.eq_ignore_ascii_case(name.as_bytes()))
    }
}

/// Writes an answer of the service itself.
pub fn write_error(error: ErrorResponse, options: ResponseOptions<'_>, out: &mut Vec<u8>) {
    let response = error.into_text(options.code_prefix);
    let mut writer = HeadWriter::begin_response(error.status, out);
    writer.field("content-type", "text/plain; charset=utf-8");
    write_code(error.number, options.code_prefix, &mut writer);
    writer.display_field("content-length", response.len()).display_field(DATE, current_date());
    write_end(options.closes || error.closes, writer);
    if !options.to_head {
        out.extend_from_slice(response.as_bytes());
    }
}

fn write_code(number: Option<u16>, prefix: &str, writer: &mut HeadWriter<'_>) {
    if let Some(number) = number {
        writer.display_field(ERROR_CODE, format_args!("{prefix}{number}"));
    }
}

fn write_end(closes: bool, mut writer: HeadWriter<'_>) {
    if closes {
        writer.field("connection", "close");
    }
    writer.end();
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use ginnel_http1::{ExpectedResponse, ResponseGrammar};

    use super::*;

    const TERMS: ResponseOptions<'_> = ResponseOptions {
        to_head: false,
        closes: false,
        code_prefix: "ERR_X_",
        source: ResponseSource::Agent,
    };

    /// Rewrites a complete head. Returns `None` if it is rejected or incomplete.
    fn rewritten(head: &str, options: ResponseOptions<'_>) -> Option<(String, FastPathResponse)> {
        let mut out = Vec::new();
        let expected = ExpectedResponse { to_head: options.to_head, may_switch: false };
        let mut reader = ResponseHeadReader::new(ResponseGrammar::Strict, expected);
        let mut head = head.as_bytes().to_vec();
        match rewrite_response_head(&mut reader, &mut head, options, &mut out).ok()? {
            HeadProgress::Final(head) => Some((String::from_utf8(out).unwrap(), head)),
            _ => None,
        }
    }

    fn passed(head: &str, options: ResponseOptions<'_>) -> (String, FastPathResponse) {
        rewritten(head, options).unwrap()
    }

    #[test]
    fn an_answer_goes_on_as_it_was_written() {
        let answer = "HTTP/1.1 299 So So\r\nDATE: today\r\nX-Odd: a\r\nx-odd: b\r\n\
                      Content-Length: 3\r\n";

        let (out, head) = passed(&format!("{answer}\r\nabc"), TERMS);

        assert_eq!(out, format!("{answer}\r\n"));
        assert_eq!((head.length, head.status), (answer.len() + 2, 299));
        assert_eq!((head.body, head.keeps_alive), (Body::Length(3), true));
    }

    #[test]
    fn what_concerns_one_connection_does_not_go_on() {
        let (out, head) = passed(
            "HTTP/1.1 200 OK\r\nDate: today\r\nConnection: close, X-Mine, Content-Length\r\n\
             X-Mine: 1\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nProxy-Authenticate: Basic\r\n\
             Ngrok-Error-Code: ERR_Y_1\r\nContent-Length: 0\r\n\r\n",
            TERMS,
        );

        assert_eq!(out, "HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: 0\r\n\r\n");
        assert!(!head.keeps_alive);
    }

    #[test]
    fn an_answer_gets_the_framing_that_it_lacks() {
        let until_close = passed("HTTP/1.0 200 OK\r\nDate: d\r\n\r\n", TERMS);
        let empty = passed("HTTP/1.1 204 No\r\nDate: d\r\nContent-Length: 4\r\n\r\n", TERMS);
        let options = ResponseOptions { to_head: true, closes: true, ..TERMS };
        let to_head = passed("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 4\r\n\r\n", options);

        assert_eq!(
            until_close.0,
            "HTTP/1.1 200 OK\r\nDate: d\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        assert_eq!((until_close.1.body, until_close.1.keeps_alive), (Body::UntilClose, false));
        assert_eq!(
            (empty.0.as_str(), empty.1.body),
            ("HTTP/1.1 204 No\r\nDate: d\r\n\r\n", Body::NONE)
        );
        assert!(to_head.0.ends_with("Content-Length: 4\r\nconnection: close\r\n\r\n"));
        assert_eq!(to_head.1.body, Body::NONE);
    }

    #[test]
    fn the_code_of_an_agent_is_named_anew() {
        let (out, _) = passed(
            "HTTP/1.1 502 Bad\r\nDate: d\r\nngrok-error-code: ERR_NGROK_8012\r\n\r\n",
            TERMS,
        );

        assert!(out.contains("\r\nngrok-error-code: ERR_X_8012\r\n"), "{out}");
        assert!(!out.contains("ERR_NGROK"));
    }

    #[test]
    fn a_missing_date_is_added() {
        let (out, _) = passed("HTTP/1.1 200 OK\r\n\r\n", TERMS);
        let write_date = out.split("date: ").nth(1).unwrap().split('\r').next().unwrap();

        assert!(
            chrono::DateTime::parse_from_rfc2822(write_date).is_ok()
                && write_date.ends_with(" GMT")
        );
    }

    #[test]
    fn ambiguous_answers_are_refused() {
        for headers in [
            "Content-Length: 3\r\nContent-Length: 3",
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Content-Length: +3",
            "Content-Length: 99999999999999999999",
            "X: a\r\n folded",
        ] {
            let head = format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\n");
            assert!(rewritten(&head, TERMS).is_none(), "{headers}");
        }
        let endless =
            format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(http1::MAX_RELAYED_HEAD_BYTES));
        assert!(rewritten(&endless, TERMS).is_none());
    }
}
