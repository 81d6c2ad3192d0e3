//! JSON in which no key is there twice.

use serde_json::{Map, Value};

use ginnel_api::json::parse_object;

/// How keys begin that serde_json has reserved.
const RESERVED: &str = "$serde_json::private::";

/// What is read is what serde_json reads, and reads the same when it is written again; only a key that
/// is there twice is a reason to refuse an object that serde_json reads.
pub fn target(data: &[u8]) {
    let (read, theirs) = (parse_object(data), serde_json::from_slice::<Map<String, Value>>(data));
    if let Ok(read) = &read {
        let written = serde_json::to_string(read).unwrap();
        assert_eq!(parse_object(written.as_bytes()).unwrap(), *read);
        if written.contains(RESERVED) {
            // Its `Value` takes the members of such an object for something of its own.
            return;
        }
    }
    match (read, theirs) {
        (Ok(read), Ok(theirs)) => assert_eq!(read, theirs),
        (Ok(_), Err(error)) => panic!("serde_json refuses it: {error}"),
        (Err(error), Ok(_)) => assert!(error.to_string().contains("is there twice"), "{error}"),
        (Err(_), Err(_)) => {}
    }
}
