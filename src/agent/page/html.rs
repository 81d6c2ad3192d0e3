//! The pages as the server renders them, of use without any script.
//!
//! Scripts then take over what is there. Whatever was captured is escaped, without exception:
//! [`Html::text`] is the only way for it into a page.

use std::fmt::Write;

use super::content;
use super::status::StatusPage;
use super::view::{Detail, MessageView, Summary};
use crate::agent::relay::escape;

/// How much of a body is shown without script.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// A page in the making.
pub(super) struct Html(String);

/// What the list shows.
pub(super) struct RequestList {
    /// The filter as it was given.
    pub filter: String,
    /// What is wrong with it.
    pub problem: Option<String>,
    /// Newest first.
    pub requests: Vec<Summary>,
    /// How many records there are.
    pub kept: usize,
    /// The record that was chosen: none, one that is gone, or this one.
    pub chosen: Option<Option<Box<Detail>>>,
}

impl Html {
    fn page(title: &str, script: &str, requests: bool) -> Self {
        let current = |is: bool| if is { " aria-current=\"page\"" } else { "" };
        let mut page = Self(String::with_capacity(16 * 1024));
        page.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")
            .raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>")
            .text(title)
            .raw(" · ginnel</title>\n")
            .raw("<link rel=\"stylesheet\" href=\"/inspect/assets/style.css\">\n")
            .raw("<link rel=\"icon\" href=\"/inspect/assets/icon.svg\" type=\"image/svg+xml\">\n")
            .raw(&format!("<script type=\"module\" src=\"/inspect/assets/{script}\"></script>\n"))
            .raw("</head>\n<body>\n<header class=\"bar\">\n")
            .raw("<a class=\"brand\" href=\"/inspect/http\">ginnel</a>\n")
            .raw("<span id=\"state\"></span>\n<nav aria-label=\"Pages\">")
            .raw(&format!("<a href=\"/inspect/http\"{}>Requests</a>", current(requests)))
            .raw(&format!("<a href=\"/status\"{}>Status</a>", current(!requests)))
            .raw("</nav>\n<span id=\"room\"></span>\n")
            .raw("<button type=\"button\" id=\"help\" hidden>Keys <kbd>?</kbd></button>\n</header>\n");
        page
    }

    fn finish(mut self) -> String {
        self.raw(
            "<div id=\"announcer\" class=\"unseen\" role=\"status\"></div>\n</body>\n</html>\n",
        );
        self.0
    }

    fn raw(&mut self, markup: &str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.raw(&escape(text))
    }

    fn cell(&mut self, class: &str, text: &str) -> &mut Self {
        let _ = write!(self.0, "<span role=\"gridcell\" class=\"{class}\">");
        self.text(text).raw("</span>")
    }
}

/// The list of requests, with one of them open.
pub(super) fn requests(listed: &RequestList) -> String {
    let mut page = Html::page("Requests", "requests.js", true);
    page.raw("<main class=\"requests\">\n<h1 class=\"unseen\">Captured requests</h1>\n");
    filter(&mut page, listed);
    page.raw("<div class=\"panes\">\n<section id=\"listing\" aria-label=\"Requests\">\n");
    list(&mut page, listed);
    page.raw(
        "</section>\n<section id=\"detail\" aria-label=\"Selected request\" tabindex=\"-1\">\n",
    );
    match &listed.chosen {
        None => page.raw("<p class=\"hint\">Select a request to see it.</p>\n"),
        Some(None) => page.raw("<p class=\"hint\">This request is no longer kept.</p>\n"),
        Some(Some(detail)) => chosen(&mut page, detail),
    };
    page.raw("</section>\n</div>\n</main>\n");
    page.finish()
}

fn filter(page: &mut Html, listed: &RequestList) {
    page.raw("<form id=\"filter\" role=\"search\" action=\"/inspect/http\">\n")
        .raw("<label for=\"wanted\">Filter</label>\n")
        .raw("<input type=\"search\" id=\"wanted\" name=\"filter\" maxlength=\"1000\" ")
        .raw("autocomplete=\"off\" spellcheck=\"false\" ")
        .raw("placeholder=\"status:5xx path:/hook* body:text &gt;200ms\" value=\"")
        .text(&listed.filter)
        .raw("\" aria-describedby=\"problem\">\n<button>Filter</button>\n")
        .raw("<span id=\"problem\" role=\"alert\">")
        .text(listed.problem.as_deref().unwrap_or_default())
        .raw("</span>\n</form>\n<div id=\"tools\"></div>\n<p id=\"count\">")
        .text(&format!("{} shown of {}", listed.requests.len(), listed.kept))
        .raw("</p>\n");
}

fn list(page: &mut Html, listed: &RequestList) {
    let count = listed.requests.len() + 1;
    page.raw("<div id=\"list\" role=\"grid\" aria-label=\"Captured requests, newest first\" ")
        .raw(&format!("aria-rowcount=\"{count}\" tabindex=\"0\">\n"))
        .raw("<div role=\"row\" class=\"row head\" aria-rowindex=\"1\">");
    let columns = [
        ("time", "Time"),
        ("method", "Method"),
        ("target", "Path"),
        ("status", "Status"),
        ("took", "Duration"),
        ("size", "Size"),
        ("source", "Source"),
        ("tunnel", "Tunnel"),
    ];
    for (class, title) in columns {
        page.raw(&format!("<span role=\"columnheader\" class=\"{class}\">{title}</span>"));
    }
    page.raw("</div>\n<div id=\"rows\" role=\"rowgroup\">\n");
    for (at, request) in listed.requests.iter().enumerate() {
        row(page, request, at + 2, &listed.filter);
    }
    page.raw("</div>\n</div>\n");
    if listed.requests.is_empty() {
        page.raw("<p class=\"hint\" id=\"empty\">No request has been captured yet.</p>\n");
    }
}

fn row(page: &mut Html, request: &Summary, index: usize, filter: &str) {
    page.raw(&format!("<div role=\"row\" class=\"row\" aria-rowindex=\"{index}\">"))
        .cell("time", request.start.get(11..23).unwrap_or_default())
        .cell("method", &request.method)
        .raw("<span role=\"gridcell\" class=\"target\"><a href=\"/inspect/http/")
        .text(&request.id);
    if !filter.is_empty() {
        let query = url::form_urlencoded::byte_serialize(filter.as_bytes()).collect::<String>();
        page.raw("?filter=").text(&query);
    }
    page.raw("\">").text(&request.target).raw("</a></span>");
    let status = request.status.map_or("pending".to_owned(), |status| status.to_string());
    let took = request.took.map(|took| format!("{took:.1} ms"));
    page.cell("status", &format!("{status}{}", marks(request)))
        .cell("took", &took.unwrap_or_default())
        .cell("size", &format!("{} / {} B", request.received, request.sent))
        .cell("source", &request.source)
        .cell("tunnel", &request.tunnel)
        .raw("</div>\n");
}

fn marks(request: &Summary) -> String {
    let marks = [
        (request.replay_of.is_some(), " ↻ replay"),
        (request.truncated, " ✂ truncated"),
        (request.unanswered, " ⚠ no answer"),
    ];
    marks.into_iter().filter(|(is, _)| *is).map(|(_, text)| text).collect()
}

fn chosen<'a>(page: &'a mut Html, detail: &Detail) -> &'a mut Html {
    let summary = &detail.summary;
    page.raw("<h2>").text(&format!("{} {}", summary.method, summary.target)).raw("</h2>\n<p>");
    let status = summary.status.map_or("pending".to_owned(), |status| status.to_string());
    page.text(&format!("{status}{}", marks(summary)))
        .text(&format!(", from {} at {}, ", summary.source, summary.start))
        .text(&format!("tunnel {}", summary.tunnel))
        .raw("</p>\n");
    if let Some(error) = &summary.error {
        page.raw("<p class=\"problem\">").text(error).raw("</p>\n");
    }
    part(page, "Request", &detail.request);
    match &detail.response {
        Some(response) => part(page, "Response", response),
        None if summary.error.is_some() => page.raw("<h3>Response</h3>\n<p>No response.</p>\n"),
        None => page.raw("<h3>Response</h3>\n<p>No response yet.</p>\n"),
    }
}

fn part<'a>(page: &'a mut Html, title: &str, part: &MessageView) -> &'a mut Html {
    page.raw(&format!("<h3>{title}</h3>\n<pre tabindex=\"0\">")).text(&part.line).raw("\n");
    for field in &part.headers {
        page.text(&format!("{}: {}\n", field.name, field.value));
    }
    let body = part.readable();
    let shown = body.get(..MAX_BODY_BYTES).unwrap_or(body);
    page.raw("\n");
    match content::text(body) {
        _ if part.unread.is_some() && part.masked => {
            page.text(&format!("{} bytes that cannot be read here", part.length))
        }
        Some(_) => page.text(content::text(shown).unwrap_or_default()),
        None => page.text(&format!("{} bytes that are not text", body.len())),
    };
    if !part.trailers.is_empty() {
        page.raw("\n\n");
    }
    for field in &part.trailers {
        page.text(&format!("{}: {}\n", field.name, field.value));
    }
    page.raw("</pre>\n");
    if (shown.len() as u64) < part.length {
        page.raw(&format!("<p>{} of {} bytes are shown.</p>\n", shown.len(), part.length));
    }
    page
}

/// The status page.
pub(super) fn status(status: &StatusPage) -> String {
    let mut page = Html::page("Status", "status.js", false);
    page.raw(
        "<main class=\"status\">\n<h1>Status</h1>\n<div id=\"status\">\n<h2>Session</h2>\n<dl>",
    );
    let latency =
        status.latency.map_or("none yet".to_owned(), |latency| format!("{latency:.1} ms"));
    for (name, value) in [
        ("State", status.state.to_owned()),
        ("Agent version", status.version.to_owned()),
        ("Uptime", format!("{} s", status.uptime)),
        ("Latency", latency),
        ("Reconnects", status.reconnects.to_string()),
        ("Captured", format!("{} of {} bytes", status.usage.bytes, status.usage.limit)),
    ] {
        page.raw("<div><dt>").text(name).raw("</dt><dd>").text(&value).raw("</dd></div>");
    }
    page.raw("</dl>\n<h2>Tunnels</h2>\n<ul>");
    for tunnel in &status.tunnels {
        let shown = serde_json::to_value(&tunnel.shown).unwrap_or_default();
        let text = |pointer| shown.pointer(pointer).and_then(|v| v.as_str()).unwrap_or_default();
        page.raw("<li>").text(&format!(
            "{}: {} → {}",
            text("/name"),
            text("/public_url"),
            text("/config/addr")
        ));
        page.raw("</li>");
    }
    page.raw("</ul>\n<h2>Options</h2>\n<dl>");
    for (name, value) in &status.options {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        page.raw("<div><dt>").text(name).raw("</dt><dd>").text(&value).raw("</dd></div>");
    }
    page.raw("</dl>\n</div>\n</main>\n");
    page.finish()
}
