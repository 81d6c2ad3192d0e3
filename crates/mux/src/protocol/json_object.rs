//! Finds the end of a JSON object in bytes that come in any pieces. No I/O.

/// Follows a JSON object to its closing brace, each byte once.
#[derive(Debug, Default)]
pub struct ObjectScanner {
    scanned: usize,
    depth: usize,
    in_text: bool,
    escaped: bool,
}

/// Bytes that begin no JSON object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON object")]
pub struct NotAnObject;

impl ObjectScanner {
    /// The length of the object in `bytes`, white space before it included; `None` while it is
    /// incomplete. `bytes` are those of the last call, and more.
    ///
    /// # Errors
    /// When something other than an object begins.
    pub fn find_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, NotAnObject> {
        for byte in bytes.iter().skip(self.scanned) {
            self.scanned += 1;
            if self.in_text {
                self.scan_string(*byte);
                continue;
            }
            match byte {
                b'"' if self.depth > 0 => self.in_text = true,
                b'{' => self.depth += 1,
                b'[' if self.depth > 0 => self.depth += 1,
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Ok(Some(self.scanned));
                    }
                }
                b' ' | b'\t' | b'\r' | b'\n' => {}
                _ if self.depth == 0 => return Err(NotAnObject),
                _ => {}
            }
        }
        Ok(None)
    }

    fn scan_string(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => self.in_text = false,
            _ => {}
        }
    }
}
