//! A child's standard streams: input fed and closed, output gathered up to a cap, nothing ever blocking.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// Bytes moved by one read or write.
const CHUNK: usize = 64 * 1024;

/// Our ends of the three pipes.
#[derive(Debug)]
pub(crate) struct Streams {
    input: Option<OwnedFd>,
    pending: Vec<u8>,
    written: usize,
    outputs: [Output; 2],
    room: usize,
    overflowed: bool,
    chunk: Vec<u8>,
}

#[derive(Debug)]
struct Output {
    pipe: Option<OwnedFd>,
    bytes: Vec<u8>,
}

/// The child's ends, all above 2; closed by dropping once it has them.
#[derive(Debug)]
pub(crate) struct ChildEnds {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Streams {
    /// Makes the pipes; `cap` bounds standard output and standard error together.
    pub(crate) fn open(input: Vec<u8>, cap: usize) -> Result<(Self, ChildEnds), Errno> {
        let (stdin, feed) = pipe_with(PipeFlags::CLOEXEC)?;
        let (out, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (err, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        for ours in [&feed, &out, &err] {
            rustix::io::ioctl_fionbio(ours, true)?;
        }
        let output = |pipe| Output { pipe: Some(pipe), bytes: Vec::new() };
        let mut streams = Self {
            input: Some(feed),
            pending: input,
            written: 0,
            outputs: [output(out), output(err)],
            room: cap,
            overflowed: false,
            chunk: Vec::new(),
        };
        streams.feed();
        Ok((streams, ChildEnds { stdin, stdout, stderr }))
    }

    /// Whether the child wrote more than the cap.
    pub(crate) fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// What to wait for.
    pub(crate) fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let input = self.input.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::OUT));
        let outputs = self
            .outputs
            .iter()
            .filter_map(|output| output.pipe.as_ref())
            .map(|pipe| PollFd::new(pipe, PollFlags::IN));
        input.into_iter().chain(outputs)
    }

    /// Moves whatever can be moved now.
    pub(crate) fn pump(&mut self) {
        self.feed();
        self.chunk.resize(CHUNK, 0);
        for output in &mut self.outputs {
            while let Some(pipe) = &output.pipe {
                match read(pipe.as_fd(), &mut self.chunk) {
                    Read::Bytes(bytes) => {
                        let taken = bytes.len().min(self.room);
                        self.overflowed |= bytes.len() > self.room;
                        output.bytes.extend(bytes.iter().take(taken));
                        self.room -= taken;
                    }
                    Read::Nothing => break,
                    Read::End => output.pipe = None,
                }
                if self.overflowed {
                    return;
                }
            }
        }
    }

    fn feed(&mut self) {
        while let Some(pipe) = &self.input {
            let rest = self.pending.get(self.written..).unwrap_or_default();
            if rest.is_empty() {
                self.input = None;
                self.pending = Vec::new();
                return;
            }
            match rustix::io::write(pipe, rest) {
                Ok(count) => self.written += count,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                // The child closed its end: it wants no more.
                Err(_) => self.input = None,
            }
        }
    }

    /// Standard output and standard error.
    pub(crate) fn into_outputs(self) -> (Vec<u8>, Vec<u8>) {
        let [stdout, stderr] = self.outputs;
        (stdout.bytes, stderr.bytes)
    }
}

enum Read<'a> {
    Bytes(&'a [u8]),
    Nothing,
    End,
}

fn read<'a>(pipe: BorrowedFd<'_>, chunk: &'a mut [u8]) -> Read<'a> {
    loop {
        match rustix::io::read(pipe, &mut *chunk) {
            Ok(0) => return Read::End,
            Ok(count) => return Read::Bytes(chunk.get(..count).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Read::Nothing,
            Err(_) => return Read::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_exactly_the_cap_over_both_streams_and_says_that_there_was_more() {
        let (mut streams, ends) = Streams::open(Vec::new(), 10).unwrap();
        rustix::io::write(&ends.stdout, b"12345678").unwrap();
        streams.pump();
        assert!(!streams.overflowed());
        rustix::io::write(&ends.stderr, b"ab").unwrap();
        streams.pump();
        assert!(!streams.overflowed(), "exactly the cap is within it");
        rustix::io::write(&ends.stderr, b"c").unwrap();
        streams.pump();
        assert!(streams.overflowed());
        assert_eq!(streams.into_outputs(), (b"12345678".to_vec(), b"ab".to_vec()));
    }

    #[test]
    fn input_larger_than_a_pipe_arrives_whole_and_ends() {
        let input: Vec<u8> = (0..300_000u32).map(|byte| byte.to_le_bytes()[0]).collect();
        let (mut streams, ends) = Streams::open(input.clone(), 0).unwrap();
        let mut received = Vec::new();
        let mut chunk = vec![0; 8192];
        loop {
            match rustix::io::read(&ends.stdin, &mut chunk).unwrap() {
                0 => break,
                count => received.extend_from_slice(&chunk[..count]),
            }
            streams.pump();
        }
        assert_eq!(received, input);
    }

    #[test]
    fn a_child_that_reads_nothing_does_not_hold_anything_up() {
        let (mut streams, ends) = Streams::open(vec![0; 1 << 20], 10).unwrap();
        drop(ends.stdin);
        streams.pump();
        assert_eq!(streams.interests().count(), 2);
    }
}
