//! The captured requests in the view: a list that is moved through and filtered, and one of them with all it says.

use std::sync::Arc;

use chrono::{DateTime, Local};
use crossterm::event::KeyCode;
use http::StatusCode;
use tokio::sync::mpsc;

use ginnel_agent::{Agent, HeaderView, MessageView, RequestDetail, RequestFilter, RequestSummary};

use super::frame::ScreenLine;
use crate::marks::RequestMarks;

/// How many requests are looked at.
const MAX_REQUESTS: usize = 200;
/// How long a filter may be that is typed here, in letters.
const MAX_FILTER_LETTERS: usize = 200;
/// How much of a body is shown.
const MAX_BODY_LINES: usize = 2_000;
const LIST_HELP: &str = "↑↓ select  enter details  r replay  / filter  ctrl-c stop";
const DETAIL_HELP: &str = "↑↓ scroll  r replay  esc back  ctrl-c stop";
const FILTER_HELP: &str = "enter keep  esc undo";

/// What somebody looks at.
#[derive(Debug, Default)]
enum Mode {
    #[default]
    List,
    /// Typing a filter; what was there before comes back with Escape.
    Filter { before: String },
    /// One request, from this line on.
    Detail { top: usize },
}

/// The requests, and what somebody chose of them.
pub(super) struct RequestPane {
    mode: Mode,
    filter_text: String,
    filter: RequestFilter,
    /// What is wrong with the filter that is being typed, or what became of the last action.
    notice: Option<String>,
    /// What was probably meant by the filter.
    hint: Option<String>,
    selected: Option<String>,
    listed: Vec<RequestSummary>,
    detail: Option<Arc<RequestDetail>>,
    /// What the lists were made of: the captures' revision.
    revision: Option<u64>,
    /// How many lines the last page had.
    page: usize,
    replies: mpsc::UnboundedReceiver<String>,
    reply: mpsc::UnboundedSender<String>,
}

impl RequestPane {
    pub fn new() -> Self {
        let (reply, replies) = mpsc::unbounded_channel();
        Self {
            mode: Mode::List,
            filter_text: String::new(),
            filter: RequestFilter::default(),
            notice: None,
            hint: None,
            selected: None,
            listed: Vec::new(),
            detail: None,
            revision: None,
            page: 1,
            replies,
            reply,
        }
    }

    /// Waits until an action that takes a while has something to say.
    pub async fn wait_for_reply(&mut self) {
        match self.replies.recv().await {
            Some(reply) => self.notice = Some(reply),
            None => std::future::pending().await,
        }
    }

    /// Whether the whole screen is for one request.
    pub fn is_detail(&self) -> bool {
        matches!(self.mode, Mode::Detail { .. })
    }

    /// Whether somebody is busy with the requests, which then need room.
    pub fn is_in_use(&self) -> bool {
        self.selected.is_some()
            || !self.filter_text.is_empty()
            || matches!(self.mode, Mode::Filter { .. })
    }

    /// Looks again if something has changed.
    pub fn refresh(&mut self, agent: &Agent) {
        let revision = agent.captures().revision();
        if self.revision == Some(revision) {
            return;
        }
        self.revision = Some(revision);
        self.listed = agent.list_requests(&self.filter, MAX_REQUESTS);
        self.detail = match (self.is_detail(), &self.selected) {
            (true, Some(id)) => agent.request_detail(id).map(Arc::new),
            _ => None,
        };
    }

    /// Does what a key stands for.
    pub fn handle_key(&mut self, agent: &Agent, key: KeyCode) {
        match self.mode {
            Mode::List => self.handle_list_key(agent, key),
            Mode::Filter { .. } => self.handle_filter_key(key),
            Mode::Detail { .. } => self.handle_detail_key(agent, key),
        }
        self.refresh(agent);
    }

    fn handle_list_key(&mut self, agent: &Agent, key: KeyCode) {
        self.notice = None;
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.move_selection(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_selection(1),
            KeyCode::PageUp => self.move_selection(-to_isize(self.page)),
            KeyCode::PageDown => self.move_selection(to_isize(self.page)),
            KeyCode::Home => self.move_selection(-to_isize(MAX_REQUESTS)),
            KeyCode::End => self.move_selection(to_isize(MAX_REQUESTS)),
            KeyCode::Enter | KeyCode::Right => {
                if self.selected.is_none() {
                    self.move_selection(1);
                }
                if self.selected.is_some() {
                    self.mode = Mode::Detail { top: 0 };
                    self.revision = None;
                }
            }
            KeyCode::Char('/') => self.mode = Mode::Filter { before: self.filter_text.clone() },
            KeyCode::Char('r') => self.replay_selected(agent),
            KeyCode::Esc if self.selected.is_some() => self.selected = None,
            KeyCode::Esc => self.set_filter(String::new()),
            _ => {}
        }
    }

    fn handle_filter_key(&mut self, key: KeyCode) {
        let mut text = self.filter_text.clone();
        match key {
            KeyCode::Enter if self.notice.is_none() => self.mode = Mode::List,
            KeyCode::Esc => {
                let Mode::Filter { before } = std::mem::take(&mut self.mode) else { return };
                self.set_filter(before);
            }
            KeyCode::Backspace => {
                text.pop();
                self.set_filter(text);
            }
            KeyCode::Char(letter) if text.chars().count() < MAX_FILTER_LETTERS => {
                text.push(letter);
                self.set_filter(text);
            }
            _ => {}
        }
    }

    fn handle_detail_key(&mut self, agent: &Agent, key: KeyCode) {
        self.notice = None;
        let Mode::Detail { top } = &mut self.mode else { return };
        match key {
            KeyCode::Up | KeyCode::Char('k') => *top = top.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => *top += 1,
            KeyCode::PageUp => *top = top.saturating_sub(self.page),
            KeyCode::PageDown | KeyCode::Char(' ') => *top += self.page,
            KeyCode::Home => *top = 0,
            KeyCode::End => *top = usize::MAX / 2,
            KeyCode::Char('r') => self.replay_selected(agent),
            KeyCode::Esc | KeyCode::Left | KeyCode::Char('q') => self.mode = Mode::List,
            _ => {}
        }
    }

    /// Reads a filter; the last one that could be read stays until this one can.
    fn set_filter(&mut self, text: String) {
        match RequestFilter::parse_terms(&text) {
            Ok(filter) => {
                self.filter = filter;
                self.notice = None;
                self.revision = None;
            }
            Err(problem) => self.notice = Some(problem),
        }
        self.hint = RequestFilter::suggest_word(&text);
        self.filter_text = text;
    }

    /// Selects a request so many lines below the one that is selected; at first the newest.
    fn move_selection(&mut self, lines: isize) {
        let last = self.listed.len().saturating_sub(1);
        let place = self.selected_index().map_or(0, |at| at.saturating_add_signed(lines).min(last));
        self.selected = self.listed.get(place).map(|request| request.id.clone());
    }

    fn selected_index(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.listed.iter().position(|request| request.id == *selected)
    }

    /// Sends the selected request once more; the list shows what becomes of it.
    fn replay_selected(&mut self, agent: &Agent) {
        let Some(id) = self.selected.clone() else {
            self.notice = Some("select a request to replay it".to_owned());
            return;
        };
        self.notice = Some("replaying…".to_owned());
        let (replaying, reply) = (agent.replay_request(&id), self.reply.clone());
        ginnel_base::tasks::spawn(async move {
            let text = match replaying.await {
                Ok(()) => "replayed".to_owned(),
                Err(error) => format!("not replayed: {error}"),
            };
            ginnel_base::logging::ignore(reply.send(text), "the view has ended");
        });
    }

    /// The list, as many lines as there is room for.
    pub fn render_list(&mut self, height: usize, columns: usize) -> Vec<ScreenLine> {
        let mut lines = vec![self.heading_text().into()];
        self.page = height.saturating_sub(1).max(1);
        let place = self.selected_index();
        // The selected one stays in sight.
        let first = place.map_or(0, |at| (at + 1).saturating_sub(self.page));
        let shown = self.listed.iter().enumerate().skip(first).take(self.page);
        let widest = shown.clone().map(|(_, request)| marks_suffix(request).chars().count()).max();
        let columns = LineColumns::for_width(columns, widest.unwrap_or_default());
        for (at, request) in shown {
            let is_selected = Some(at) == place;
            let margin = match (place, is_selected) {
                (None, _) => "",
                (_, true) => "> ",
                (_, false) => "  ",
            };
            lines.push(ScreenLine {
                text: format!("{margin}{}", columns.format_request(request)),
                is_selected,
            });
        }
        lines
    }

    fn heading_text(&self) -> String {
        match &self.mode {
            Mode::Filter { .. } => format!("Requests  filter: {}▏", self.filter_text),
            _ if self.filter_text.is_empty() => "Requests".to_owned(),
            _ if self.listed.is_empty() => {
                format!("Requests  filter: {} (none match; esc shows all)", self.filter_text)
            }
            _ => format!("Requests  filter: {}", self.filter_text),
        }
    }

    /// Whether there is something to list.
    pub fn has_lines(&self) -> bool {
        !self.listed.is_empty() || self.is_in_use()
    }

    /// All that one request says, as far as there is room.
    pub fn render_detail(&mut self, height: usize) -> Vec<ScreenLine> {
        let lines = match &self.detail {
            Some(detail) => detail_lines(detail),
            None => vec!["The request is no longer kept.".to_owned()],
        };
        self.page = height.max(1);
        let Mode::Detail { top } = &mut self.mode else { return Vec::new() };
        *top = (*top).min(lines.len().saturating_sub(self.page));
        lines.into_iter().skip(*top).take(self.page).map(ScreenLine::from).collect()
    }

    /// The last line of the screen: what keys do, or what became of the last one.
    pub fn footer_text(&self) -> String {
        let help = match self.mode {
            Mode::List => LIST_HELP,
            Mode::Filter { .. } => FILTER_HELP,
            Mode::Detail { .. } => DETAIL_HELP,
        };
        match self.notice.as_ref().or(self.hint.as_ref()) {
            Some(notice) => format!("{notice}  ·  {help}"),
            None => help.to_owned(),
        }
    }
}

fn to_isize(number: usize) -> isize {
    isize::try_from(number).unwrap_or(isize::MAX)
}

/// How wide the columns of the list are, in letters; the target has what the others leave.
#[derive(Debug, Clone, Copy)]
struct LineColumns {
    target: usize,
    status: usize,
}

/// What time, method and duration take with the blanks between all columns, and the margin of a selection.
const FIXED_COLUMNS: usize = 36;
/// The narrowest and the widest target.
const TARGET_COLUMNS: [usize; 2] = [12, 80];

impl LineColumns {
    /// On a terminal of so many columns, where marks take up to so many.
    fn for_width(columns: usize, marks: usize) -> Self {
        let status = match columns {
            110.. => 24,
            90.. => 16,
            _ => 6,
        };
        let [least, most] = TARGET_COLUMNS;
        let target = columns.saturating_sub(FIXED_COLUMNS + status + marks).clamp(least, most);
        Self { target, status }
    }

    /// A request in one line.
    fn format_request(self, request: &RequestSummary) -> String {
        let start = DateTime::parse_from_rfc3339(&request.start)
            .map_or_else(|_| request.start.clone(), |start| format_clock(start.into()));
        let took = request.took.map(|took| format!("{took:.1} ms")).unwrap_or_default();
        let note = request.note.as_ref().map(|note| format!(" note: {note}")).unwrap_or_default();
        let line = format!(
            "{start} {:<7} {} {} {took:>10}{}{note}",
            request.method,
            pad_cell(&request.target, self.target),
            pad_cell(&status_text(request), self.status),
            marks_suffix(request)
        );
        line.trim_end().to_owned()
    }
}

/// A text in a column of this width, cut off where it is longer.
fn pad_cell(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => format!("{text:<width$}"),
    }
}

fn format_clock(start: DateTime<Local>) -> String {
    start.format("%H:%M:%S%.3f").to_string()
}

fn status_text(request: &RequestSummary) -> String {
    if let Some(failure) = request.grpc_status.filter(|status| *status != 0) {
        return format!("gRPC {failure}");
    }
    let Some(code) = request.status else { return "...".to_owned() };
    let reason = StatusCode::from_u16(code).ok().and_then(|code| code.canonical_reason());
    format!("{code} {}", reason.unwrap_or_default()).trim_end().to_owned()
}

fn marks_suffix(request: &RequestSummary) -> String {
    let marks = RequestMarks {
        mocked: request.mock.is_some(),
        held: request.hold.is_some(),
        edited: request.edited,
        policy: request.policy,
        pinned: request.pinned,
        imported: request.imported,
        replay: request.replay_of.is_some(),
        failed: request.error.is_some() || request.grpc_status.is_some_and(|status| status != 0),
    };
    marks.suffix()
}

fn detail_lines(detail: &RequestDetail) -> Vec<String> {
    let summary = &detail.summary;
    let mut lines = vec![format!("{} {}", summary.method, summary.target)];
    let took = summary.took.map(|took| format!(" in {took:.1} ms")).unwrap_or_default();
    lines.push(format!("{}{took}{}", status_text(summary), marks_suffix(summary)));
    lines.extend([
        String::new(),
        format!("Id        {}", summary.id),
        format!("Start     {}", summary.start),
        format!("Tunnel    {}", summary.tunnel),
        format!("From      {}", summary.source),
    ]);
    lines.extend(detail.url.iter().map(|url| format!("URL       {url}")));
    lines.extend(summary.replay_of.iter().map(|id| format!("Replay of {id}")));
    lines.extend(summary.note.iter().map(|note| format!("Note      {note}")));
    lines.extend(summary.error.iter().map(|error| format!("Error     {error}")));
    if let Some(time) = &summary.timings {
        lines.push(format!(
            "Time      waited {:.1} ms, connected {:.1} ms, first byte {:.1} ms, body {:.1} ms",
            time.waited, time.connected, time.first_byte, time.body
        ));
    }
    for rule in &detail.rules {
        let name = match rule.name.0.as_str() {
            "" => format!("rule {}", rule.index),
            name => format!("rule {} {name:?}", rule.index),
        };
        lines.push(format!("Policy    {} {name}: {}", rule.module, rule.actions.join(", ")));
    }
    lines.push(String::new());
    lines.extend(message_lines(&detail.request));
    if let Some(response) = &detail.response {
        lines.push(String::new());
        lines.extend(message_lines(response));
    }
    lines
}

/// A request or a response as it is written, with its body if that is text.
fn message_lines(message: &MessageView) -> Vec<String> {
    let field = |field: &HeaderView| format!("{}: {}", field.name, field.value);
    let mut lines = vec![message.line.clone()];
    lines.extend(message.headers.iter().map(field));
    if message.length > 0 {
        lines.push(String::new());
        lines.extend(body_lines(message));
    }
    lines.extend(message.trailers.iter().map(field));
    lines
}

fn body_lines(message: &MessageView) -> Vec<String> {
    let body = &message.readable;
    let Some(text) = body.text.as_ref().or(body.raw_text.as_ref()) else {
        return vec![describe_binary(message)];
    };
    let pretty = match body.kind == "json" {
        true => serde_json::from_str::<serde_json::Value>(text)
            .and_then(|value| serde_json::to_string_pretty(&value))
            .ok(),
        false => None,
    };
    let mut all = pretty.as_deref().unwrap_or(text).lines();
    let notes = body.notes.iter().map(|note| format!("({note})"));
    let shown = all.by_ref().take(MAX_BODY_LINES).map(|line| line.replace('\t', "    "));
    let mut lines: Vec<_> = notes.chain(shown).collect();
    let left = all.count();
    if left > 0 {
        lines.push(format!("({left} more lines)"));
    }
    if (message.kept as u64) < message.length {
        lines.push(format!("({} of {} bytes were kept)", message.kept, message.length));
    }
    lines
}

fn describe_binary(message: &MessageView) -> String {
    match message.readable.media_type.as_str() {
        "" => format!("({} bytes)", message.length),
        kind => format!("({} bytes of {kind})", message.length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(target: &str, status: u16, grpc_status: Option<u16>) -> RequestSummary {
        RequestSummary {
            start: "2026-11-26T12:00:00.000Z".to_owned(),
            method: "GET".to_owned(),
            target: target.to_owned(),
            status: Some(status),
            took: Some(12.3),
            grpc_status,
            replay_of: Some("0".to_owned()),
            pinned: true,
            ..RequestSummary::default()
        }
    }

    #[test]
    fn columns_stay_in_line_and_marks_whole() {
        let requests = [
            request("/short", 200, None),
            request(&"/long".repeat(30), 511, None),
            request("/call", 200, Some(5)),
        ];
        for width in [80, 100, 160] {
            let columns = LineColumns::for_width(width, marks_suffix(&requests[2]).len());

            let lines =
                requests.iter().map(|request| columns.format_request(request)).collect::<Vec<_>>();

            let places: Vec<_> = lines
                .iter()
                .map(|line| line.chars().count() - "12.3 ms  [pinned, replay]".len())
                .collect();
            assert!(
                lines[..2].iter().all(|line| line.ends_with("12.3 ms  [pinned, replay]")),
                "{lines:?}"
            );
            assert_eq!(places[0], places[1], "{lines:?}");
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
            assert!(lines[2].contains("gRPC 5") && lines[2].ends_with("[pinned, replay, failed]"));
        }
    }
}
