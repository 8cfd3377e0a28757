//! QEMU with disks: started, watched on its serial port, and cut off.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::Child,
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    cleanup::{Guard, Undo, spawn_guarded},
    run::Cmd,
};

/// Environment variable with the accelerator, as `-accel` of QEMU takes it: `kvm` where it works. Some virtual machines have a
/// /dev/kvm on which a guest never prints a line.
const ACCELERATOR_VARIABLE: &str = "SFS_GUEST_ACCEL";

/// A disk of a guest, which the guest finds as `/dev/disk/by-id/virtio-NAME`.
pub(crate) struct Disk {
    pub(crate) name: &'static str,
    /// Raw image.
    pub(crate) image: PathBuf,
}

/// A machine that can be started.
pub(crate) struct Guest {
    pub(crate) kernel: PathBuf,
    pub(crate) initrd: PathBuf,
    /// Command line of the kernel, besides the console.
    pub(crate) kernel_arguments: String,
    pub(crate) memory_mib: u32,
    pub(crate) disks: Vec<Disk>,
}

/// A started machine. Dropping it is a power cut.
pub(crate) struct RunningGuest {
    child: Child,
    lines: Receiver<String>,
    _guard: Guard,
}

impl Guest {
    /// Switches the machine on.
    pub(crate) fn start(&self) -> Result<RunningGuest> {
        // On a busy host the emulated timer ticks too late for the kernel's check, and units and devices take longer than systemd's 90 s.
        let append = format!(
            "console=ttyS0 panic=-1 quiet loglevel=3 no_timer_check systemd.default_timeout_start_sec=900 \
             systemd.default_device_timeout_sec=900 {}",
            self.kernel_arguments
        );
        // With a thread for each processor, the kernel may meet its own breakpoint while it changes its code, and panics (QEMU 7.2).
        let accelerator = std::env::var(ACCELERATOR_VARIABLE);
        let accelerator = accelerator.unwrap_or_else(|_| "tcg,thread=single".into());
        let mut cmd = Cmd::new("qemu-system-x86_64")
            // The emulation of cmpxchg16b, by which the kernel allocates memory, leaves wrong flags now and then: it panics (QEMU 7.2).
            .args(["-accel", &accelerator, "-cpu", "max,-cx16", "-smp", "2"])
            // A restart ends QEMU: with an emulated processor, the reset of QEMU 7.2 hangs.
            .args(["-no-reboot"])
            .args(["-display", "none", "-serial", "stdio", "-monitor", "none", "-nic", "none"])
            .args(["-m", &self.memory_mib.to_string(), "-append", &append])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initrd);
        for Disk { name, image } in &self.disks {
            // A power cut of the guest keeps what QEMU has written, as the host lives on.
            let drive = format!(
                "file={},format=raw,if=none,id={name},discard=unmap,cache=writeback",
                image.display()
            );
            let device = format!("virtio-blk-pci,drive={name},serial={name}");
            cmd = cmd.args(["-drive", &drive, "-device", &device]);
        }
        let (mut child, guard) = spawn_guarded(cmd, Undo::End)?;
        let stdout = child.stdout.take().context("stdout is not a pipe")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(RunningGuest { child, lines, _guard: guard })
    }
}

impl RunningGuest {
    /// Waits for a line for which `wanted` returns a value, and prints all lines on the way. `None` if the guest switches
    /// itself off or restarts first; after a restart the caller starts it again.
    ///
    /// # Errors
    ///
    /// `timeout` passes, or the guest's kernel panics.
    pub(crate) fn wait_for<T>(
        &mut self,
        timeout: Duration,
        mut wanted: impl FnMut(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    println!("  | {line}");
                    if line.contains("Kernel panic") {
                        bail!("the guest's kernel has panicked");
                    }
                    if let Some(value) = wanted(&line) {
                        return Ok(Some(value));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("the guest said nothing that was waited for in {} s", timeout.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    /// Waits until the guest has switched itself off.
    pub(crate) fn wait_for_end(&mut self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => println!("  | {line}"),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => bail!("the guest did not switch itself off"),
            }
        }
        self.child.wait()?;
        Ok(())
    }

    /// Cuts the power.
    pub(crate) fn cut(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for RunningGuest {
    fn drop(&mut self) {
        // After an orderly end there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
