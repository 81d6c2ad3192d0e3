//! The pages as they are sent: a shell, with what it shows first as data.
//!
//! The scripts draw it with what draws everything that comes later. Whatever was captured is data here and
//! text there; [`fill`] is the only way for it into a page.

use serde::Serialize;

use super::live::LiveUpdate;
use super::status::StatusPage;
use super::view::Detail;

const REQUESTS: &str = include_str!("assets/requests.html");
const STATUS: &str = include_str!("assets/status.html");
/// Where the data goes.
const PLACE: &str = "{first}";

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
    pub chosen: Option<Detail>,
}

/// The list of requests, with one of them open.
pub(super) fn requests(first: &FirstView) -> String {
    fill(REQUESTS, first)
}

/// The status page.
pub(super) fn status(status: &StatusPage) -> String {
    fill(STATUS, status)
}

fn fill(shell: &str, first: &impl Serialize) -> String {
    // The types of the page always make JSON.
    let data = serde_json::to_string(first).unwrap_or_default();
    // In JSON these stand in texts alone, where an escape means the same; in HTML they would end the data.
    let data = data.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    shell.replacen(PLACE, &data, 1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn data_ends_where_the_shell_says() {
        for hostile in ["</script><script>alert(1)</script>", "<!--<script>", "]]>&lt;", "{first}"]
        {
            let page = fill(REQUESTS, &hostile);

            let (_, rest) = page.split_once("id=\"first\">").unwrap();
            let (data, _) = rest.split_once("</script>").unwrap();
            assert_eq!(serde_json::from_str::<String>(data).unwrap(), hostile);
            assert_eq!(page.matches("<script").count(), 2, "{page}");
        }
    }

    #[test]
    fn nothing_but_data_and_files_of_the_page_is_run() {
        for shell in [REQUESTS, STATUS] {
            assert_eq!(shell.matches(PLACE).count(), 1);
            assert!(!shell.contains("style=") && !shell.contains(" on"), "{shell}");
            assert!(!shell.contains("http://") && !shell.contains("https://"), "{shell}");
            assert!(shell.contains("<noscript>"), "{shell}");
        }
    }
}
