//! Reading what was appended to a log since the last look. A last line without
//! its newline is left for the next look: the writer may be in the middle.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::marker::PhantomData;
use std::path::Path;

use domain::log::{Entry, Line, decode_line};
use serde::de::DeserializeOwned;

use crate::StoreError;

/// A reader's place in a log.
#[derive(Debug)]
pub struct Tail<T> {
    offset: u64,
    seq: u64,
    entries: PhantomData<fn() -> T>,
}

impl<T> Default for Tail<T> {
    fn default() -> Self {
        Self { offset: 0, seq: 0, entries: PhantomData }
    }
}

impl<T: DeserializeOwned> Tail<T> {
    /// Entries in whole lines that were not read before.
    pub fn read(&mut self, file: &File, path: &Path) -> Result<Vec<Entry<T>>, StoreError> {
        let io = |source| StoreError::Io { act: "read", path: path.to_owned(), source };
        let mut reader = file;
        reader.seek(SeekFrom::Start(self.offset)).map_err(io)?;
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(io)?;
        let mut entries = Vec::new();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(text) = line.strip_suffix(b"\n") else { break };
            match decode_line(text, self.seq + 1) {
                Ok(Line::Known(entry)) => entries.push(entry),
                Ok(Line::Unknown { .. }) => {}
                Err(source) => {
                    return Err(StoreError::DamagedLine {
                        path: path.to_owned(),
                        line: self.seq + 1,
                        source,
                    });
                }
            }
            self.seq += 1;
            self.offset += line.len() as u64;
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::id::Millis;
    use domain::log::{Control, encode_line};
    use std::io::Write as _;

    #[test]
    fn a_line_is_read_once_and_only_when_it_is_whole() {
        let mut file = tempfile::tempfile().unwrap();
        let line = |seq| encode_line(seq, Millis(0), &Control::Launched { attempt: 1 }).unwrap();
        let mut tail = Tail::<Control>::default();
        let mut look = |file: &File| tail.read(file, Path::new("x")).unwrap().len();
        file.write_all(&line(1)).unwrap();
        assert_eq!(look(&file), 1);
        let second = line(2);
        file.write_all(&second[..10]).unwrap();
        assert_eq!(look(&file), 0);
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(&second[10..]).unwrap();
        assert_eq!(look(&file), 1);
        assert_eq!(look(&file), 0);
    }
}
