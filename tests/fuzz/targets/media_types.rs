//! Values of `Content-Type`.

use ginnel_http1::{media_type_in, media_type_parameters};

/// What is read is printed and read again the same, no name comes twice, and parameters that follow change nothing.
pub fn target(data: &[u8]) {
    let Ok(value) = std::str::from_utf8(data) else { return };
    let (media_type, parameters) = (media_type_in(value), media_type_parameters(value));
    assert!(!media_type.contains(';') && !media_type.starts_with(' '));
    for (at, (name, _)) in parameters.iter().enumerate() {
        assert_eq!(*name, name.to_ascii_lowercase());
        assert!(parameters[..at].iter().all(|(known, _)| known != name), "{name} comes twice");
    }

    let mut printed = media_type.to_owned();
    for (name, value) in &parameters {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        printed.push_str(&format!("; {name}=\"{value}\""));
    }
    assert_eq!(media_type_in(&printed), media_type);
    assert_eq!(media_type_parameters(&printed), parameters, "{printed}");

    printed.push_str("; last=1; last=2");
    let longer = media_type_parameters(&printed);
    assert_eq!(longer[..parameters.len()], parameters);
}
