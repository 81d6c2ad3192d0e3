//! Files with secrets.

use ginnel_net::secret_file::secret_text;

/// A secret is the end of the file, without the byte order mark, and a problem shows nothing of it.
pub fn target(data: &[u8]) {
    match secret_text(data.to_vec()) {
        Ok(text) => {
            assert!(data.ends_with(text.as_bytes()) && data.len() - text.len() <= 3);
            if !text.starts_with('\u{feff}') {
                assert_eq!(secret_text(text.clone().into_bytes()).ok(), Some(text));
            }
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("the file is "), "{message}");
            assert!(message.len() < 80, "{message}");
        }
    }
}
