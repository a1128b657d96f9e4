//! `inkstone watch` at programs that end, do nothing, are the kernel's, or have thousands of files.
//! What it says of programs that sync is in lab/lab/tests/watch_beside.rs.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{directory, json, refused, run, said, signal, spawn, text, until};
use inkstone_host::{Mount, signal_process};
use tempfile::TempDir;

/// A shell that runs this, and ends with the test.
struct Shell(Child);

impl Shell {
    fn run(at: &Path, script: &str) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(at).stdin(Stdio::piped());
        Self(shell.spawn().expect("sh"))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A mount of tracefs of the test's own. All mounts show the same; another test's may end earlier.
struct Tracefs {
    /// The fields go in this order.
    _mount: Mount,
    directory: TempDir,
}

impl Tracefs {
    fn mounted() -> Self {
        let directory = directory();
        let mount = Mount::new(Path::new("tracefs"), directory.path(), "tracefs", "");
        Self { _mount: mount.expect("mounted"), directory }
    }

    /// What `tracing_on` says in each instance of this watch.
    fn of(&self, watch: u32) -> Vec<String> {
        let mark = format!("-{watch}-");
        let all = std::fs::read_dir(self.directory.path().join("instances"))
            .expect("instances")
            .flatten();
        let own = all.filter(|entry| entry.file_name().to_string_lossy().contains(&mark));
        let on =
            |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("tracing_on"));
        own.map(|entry| on(entry).unwrap_or_default().trim().to_owned()).collect()
    }
}

#[test]
fn a_kernel_thread_is_not_watched() {
    let directory = directory();
    let at = directory.path();
    if Path::new("/proc/2/comm").exists()
        && std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd")
    {
        refused(at, "watch 2", 1, "is a kernel thread");
    }
}

#[test]
#[ignore = "needs root and tracefs"]
fn a_program_that_makes_nothing_durable_and_one_that_ends() {
    let directory = directory();
    let at = directory.path();
    let writes = "while :; do echo line; sleep 0.05; done >out";
    let shell = Shell::run(at, writes);
    let seen = run(at, format!("watch {} --seconds 2", shell.0.id()).as_str());
    let page = text(&seen.stdout);
    assert!(page.contains("asked for nothing to be durable in "), "{page}{}", said(&seen));
    // It syncs and ends: what was seen until then. Again and again, since a watch that gets too many
    // events, of the programs of other tests too, traces a part of the time.
    let syncs =
        "exec 3>gone; sleep 4; for i in $(seq 40); do echo x >&3; sync gone; sleep 0.05; done";
    let ends = Shell::run(at, syncs);
    let seen = run(at, format!("watch {} --seconds 60", ends.0.id()).as_str());
    let page = text(&seen.stdout);
    assert!(page.contains("the program ended"), "{}", said(&seen));
    assert!(page.contains("each fsync of gone pays"), "{page}");
}

#[test]
#[ignore = "needs root and tracefs"]
fn thousands_of_files_and_one_that_is_renamed() {
    let directory = directory();
    let at = directory.path();
    let create = |number: usize| File::create(at.join(number.to_string())).expect("a file");
    let mut files: Vec<File> = (0..900).map(create).collect();
    let watch = spawn(at, "watch --path . --seconds 6 --json -");
    std::thread::sleep(Duration::from_secs(2));
    std::fs::rename(at.join("7"), at.join("seven")).expect("renamed");
    // Again and again: on a busy machine the watch begins later.
    for _ in 0..20 {
        for file in files.iter_mut().take(30) {
            file.write_all(b"some bytes").expect("written");
            file.sync_data().expect("synced");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let ended = watch.wait_with_output().expect("an end");
    assert!(ended.status.success(), "{}", said(&ended));
    let report = json(&ended.stdout);
    let listed = report["files"].as_array().expect("files");
    let left_out = report["files_left_out"].as_u64().expect("a number");
    let few = (&report["warnings"], &report["lost_events"], listed.last());
    assert_eq!(listed.len() as u64 + left_out, 30, "{few:#?}");
    let path = |file: &serde_json::Value| file["path"].as_str().expect("a path").to_owned();
    assert!(!listed.iter().any(|file| path(file).ends_with("/7")), "{report:#}");
}

#[test]
#[ignore = "needs root and tracefs"]
fn nothing_is_left_and_what_a_kill_left_is_removed() {
    let (directory, traces) = (directory(), Tracefs::mounted());
    let at = directory.path();
    let mut watch = spawn(at, "watch --path . --seconds 600");
    let id = watch.id();
    until("it traces", || !traces.of(id).is_empty());
    signal_process(id, inkstone_host::Signal::Kill).expect("killed");
    watch.wait().expect("its end");
    let seen = run(at, "watch --path . --seconds 1");
    assert!(seen.status.success(), "{}", said(&seen));
    // This command removed it, or one of another test that began meanwhile.
    assert_eq!(traces.of(id), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and tracefs"]
fn ctrl_c_and_ctrl_backslash_leave_no_tracing_on() {
    let (directory, traces) = (directory(), Tracefs::mounted());
    let at = directory.path();
    for sent in ["-INT", "-QUIT"] {
        let watch = spawn(at, "watch --path . --seconds 600 --slow 10ms");
        let id = watch.id();
        until("it traces", || traces.of(id).contains(&"1".to_owned()));
        signal(sent, id);
        let ended = watch.wait_with_output().expect("an end");
        assert_eq!(ended.status.code(), Some(130), "{sent}: {}", said(&ended));
        assert_eq!(traces.of(id), Vec::<String>::new(), "{sent}");
    }
}

#[test]
#[ignore = "needs root and tracefs"]
fn half_a_second_is_watched_for_half_a_second() {
    let directory = directory();
    let at = directory.path();
    let shell = Shell::run(at, "while :; do echo line; sleep 0.05; done >out");
    let id = shell.0.id();
    // A busy machine may be late once, and not five times.
    let pages = (0..5).map(|_| text(&run(at, format!("watch {id} --seconds 0.5").as_str()).stdout));
    let is_half = |page: &String| {
        page.contains(", watched for 0.5 s") && page.contains("nothing to be durable in 0.5 s")
    };
    let pages: Vec<String> = pages.collect();
    assert!(pages.iter().any(is_half), "{}", pages.concat());
}

/// As a container does it: mounts of its own, in which the directory has another name.
#[test]
#[ignore = "needs root, tracefs and unshare"]
fn a_directory_that_a_container_mounts_is_found_by_the_hosts_name() {
    let directory = directory();
    let at = directory.path();
    for made in ["data/below", "other", "inside"] {
        std::fs::create_dir_all(at.join(made)).expect("a directory");
    }
    // In it the directory's own path is that of another one.
    let writes = "mount --bind data inside && mount --bind other data && \
                  exec 3>>inside/below/log 4>>data/log; touch ready; \
                  while :; do echo line >&3; echo line >&4; sync inside/below/log data/log; \
                  sleep 0.02; done";
    // Copies of other tests' mounts would keep their loop devices busy.
    let leaves = "while read -r of at rest; do case $of in /dev/loop*) umount $at; esac; done \
                  </proc/mounts";
    let script = format!("exec unshare -m sh -c '{leaves}; {writes}'");
    let _shell = Shell::run(at, &script);
    until("it is mounted", || at.join("ready").exists());
    assert!(!at.join("inside/below").exists(), "the mounts are the program's own");
    let seen = run(at, "watch --path data --seconds 2 --json report.json");
    let page = text(&seen.stdout);
    assert!(page.contains("each fsync of log pays"), "{page}{}", said(&seen));
    let report = json(&std::fs::read(at.join("report.json")).expect("the report"));
    let paths = report["files"].as_array().expect("files").iter();
    let paths: Vec<&str> = paths.filter_map(|file| file["path"].as_str()).collect();
    let named = at.canonicalize().expect("its path").join("data/below/log");
    assert_eq!(paths, [named.to_str().expect("text")], "{page}");
}

/// Every file that a default run opens for writing, creates, renames or removes, as the kernel saw
/// it.
#[test]
#[ignore = "needs root, tracefs and strace"]
fn nothing_is_written_but_to_tracefs_and_the_terminal() {
    let directory = directory();
    let at = directory.path();
    let _shell =
        Shell::run(at, "exec 3>>log; while :; do echo line >&3; sync log; sleep 0.02; done");
    let record = |options: &[&str]| {
        let calls = "trace=open,openat,openat2,creat,mkdir,mkdirat,rmdir,unlink,unlinkat,rename,\
                     renameat,renameat2,link,linkat,symlink,symlinkat,truncate,ftruncate,mknod,\
                     mknodat";
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "calls", "-e", &calls.replace(' ', "")]);
        strace.arg(env!("CARGO_BIN_EXE_inkstone")).args(["watch", "--path", ".", "--seconds"]);
        let ended = strace.arg("2").args(options).current_dir(at).output().expect("strace");
        assert!(ended.status.success(), "{}", said(&ended));
        assert!(text(&ended.stdout).contains("each fsync of log pays"), "{}", said(&ended));
        let calls = std::fs::read_to_string(at.join("calls")).expect("the calls");
        let writes = |line: &&str| {
            let is_open = line.contains("open(") || line.contains("openat");
            !is_open || ["O_WRONLY", "O_RDWR", "O_CREAT"].iter().any(|flag| line.contains(flag))
        };
        let is_ours = |line: &&str| {
            let allowed = ["/instances/inkstone-", "\"/dev/null\"", "\"/dev/tty\"", "<... "];
            !allowed.iter().any(|place| line.contains(place)) && line.contains('(')
        };
        calls.lines().filter(writes).filter(is_ours).map(str::to_owned).collect::<Vec<String>>()
    };
    assert_eq!(record(&[]), Vec::<String>::new());
    // What must be seen is seen.
    assert!(record(&["--json", "out.json"]).iter().any(|line| line.contains("out.json")));
}
