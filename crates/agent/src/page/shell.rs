//! The pages as they are sent: a shell, with what it shows first as data.
//!
//! The scripts draw it with what draws everything that comes later. Whatever was captured is data here and
//! text there; [`render_page`] is the only way for it into a page.

use serde::Serialize;

use ginnel_web::script_data;

use super::live::LiveUpdate;
use super::status::StatusPage;
use super::view::RequestDetail;

const SHELL: &str = include_str!("assets/shell.html");
/// Where the data goes.
const PLACE: &str = "{first}";

/// What differs between the pages.
struct PageTemplate {
    /// The title, and the text of its link.
    title: &'static str,
    script: &'static str,
    /// What the bar holds besides the links.
    bar: &'static str,
    /// What is said where scripts do not run: where the same is as JSON.
    without_script: &'static str,
    main: &'static str,
}

const REQUESTS: PageTemplate = PageTemplate {
    title: "Requests",
    script: "requests.js",
    bar: "<span id=\"room\"></span>\n\
          <button type=\"button\" id=\"help\">Keys <kbd>?</kbd></button>\n",
    without_script: "the captured requests are at \
                     <a href=\"/api/requests/http\">/api/requests/http</a>",
    main: include_str!("assets/requests.html"),
};

const STATUS: PageTemplate = PageTemplate {
    title: "Status",
    script: "status.js",
    bar: "",
    without_script: "the status is at <a href=\"/api/status\">/api/status</a> and the tunnels are at \
                     <a href=\"/api/tunnels\">/api/tunnels</a>",
    main: include_str!("assets/status.html"),
};

const TRAFFIC: PageTemplate = PageTemplate {
    title: "Traffic",
    script: "traffic.js",
    bar: "",
    without_script: "the figures of tunnels are at <a href=\"/api/tunnels\">/api/tunnels</a>",
    main: include_str!("assets/traffic.html"),
};

const RULES: PageTemplate = PageTemplate {
    title: "Mocks",
    script: "rules.js",
    bar: "",
    without_script: "mocks are at <a href=\"/api/mocks\">/api/mocks</a> and holds are at \
                     <a href=\"/api/holds\">/api/holds</a>",
    main: include_str!("assets/rules.html"),
};

impl PageTemplate {
    /// The page without its data.
    fn render_shell(&self) -> String {
        let link = format!(">{}</a>", self.title);
        SHELL
            .replacen(&link, &format!(" aria-current=\"page\"{link}"), 1)
            .replacen("{title}", self.title, 1)
            .replacen("{script}", self.script, 1)
            .replacen("{bar}", self.bar, 1)
            .replacen("{without_script}", self.without_script, 1)
            .replacen("{main}", self.main, 1)
    }
}

/// What the page of requests shows first.
#[derive(Debug, Serialize)]
pub(super) struct FirstView {
    /// The filter as it was given.
    pub filter: String,
    /// What is wrong with it.
    pub problem: Option<String>,
    /// What matches it; none where something is wrong.
    pub update: Option<LiveUpdate>,
    /// The record in the address, while it is kept.
    pub chosen: Option<RequestDetail>,
}

/// The list of requests, with one of them open.
pub(super) fn render_requests(first: &FirstView) -> String {
    render_page(&REQUESTS, first)
}

/// The status page.
pub(super) fn render_status(status: &StatusPage) -> String {
    render_page(&STATUS, status)
}

/// The page with plots, which asks for its data.
pub(super) fn render_traffic() -> String {
    render_page(&TRAFFIC, &())
}

/// The page of mocks and holds, which asks for its data.
pub(super) fn render_rules() -> String {
    render_page(&RULES, &())
}

fn render_page(page: &PageTemplate, first: &impl Serialize) -> String {
    page.render_shell().replacen(PLACE, &script_data(first), 1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn data_ends_where_the_shell_says() {
        for hostile in ["</script><script>alert(1)</script>", "<!--<script>", "]]>&lt;", "{first}"]
        {
            let page = render_page(&REQUESTS, &hostile);

            let (_, rest) = page.split_once("id=\"first\">").unwrap();
            let (data, _) = rest.split_once("</script>").unwrap();
            assert_eq!(serde_json::from_str::<String>(data).unwrap(), hostile);
            assert_eq!(page.matches("<script").count(), 2, "{page}");
        }
    }

    #[test]
    fn nothing_but_data_and_files_of_the_page_is_run() {
        for page in [REQUESTS, STATUS, TRAFFIC, RULES] {
            let shell = page.render_shell();
            assert_eq!(shell.matches('{').count(), 1, "{shell}");
            assert_eq!(shell.matches(PLACE).count(), 1);
            assert_eq!(shell.matches("aria-current").count(), 1);
            assert!(!shell.contains("style=") && !shell.contains(" on"), "{shell}");
            assert!(!shell.contains("http://") && !shell.contains("https://"), "{shell}");
            assert!(shell.contains("<noscript>"), "{shell}");
        }
    }
}
