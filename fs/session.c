/* SPDX-License-Identifier: Apache-2.0 */
/* Mounting: options, capabilities, the handshake with the kernel. */
#include "fs/fs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "fs/epochs_dir.h"
#include "fs/files.h"
#include "fs/invalidate.h"
#include "fs/handover.h"
#include "fs/loop.h"
#include "fs/ops.h"
#include "fs/passthrough.h"
#include "fs/users.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/log.h"

/* RELEASE is a request of the background: none may be held back behind the kernel's limit. */
#define BACKGROUND_MAX 32767
#define WRITE_MAX      (1u << 20)

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
static void want_only(struct fuse_conn_info *conn, uint64_t caps)
{
	fuse_unset_feature_flag(conn, UINT64_MAX);
	fuse_set_feature_flag(conn, conn->capable_ext & caps);
}
#else
static void want_only(struct fuse_conn_info *conn, unsigned caps)
{
	conn->want = conn->capable & caps;
}
#endif

/* The protocol since which a notice may say that a name has expired. */
#define EXPIRE_MINOR 38

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct fs_mount *m = userdata;

	m->expires = conn->proto_minor >= EXPIRE_MINOR;
	/* Not wanted: the writeback cache (it excludes passthrough), export (NFS would keep node ids
	 * for ever), invalidation by mtime (nothing changes behind the kernel's back), locks (the
	 * kernel's own do), ACLs, the umask left to us, direct I/O in the background (a signal would not
	 * end it), reading requests through a pipe (a request of a
	 * mebibyte and its header do not fit). */
	want_only(conn, FUSE_CAP_ASYNC_READ | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_PARALLEL_DIROPS |
				FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO |
				FUSE_CAP_SPLICE_WRITE | FUSE_CAP_CACHE_SYMLINKS);
	conn->max_write = WRITE_MAX;
	conn->max_background = BACKGROUND_MAX;
	conn->congestion_threshold = BACKGROUND_MAX;
	conn->time_gran = 1;
}

static const struct fuse_lowlevel_ops operations = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.open = op_open,
	.create = op_create,
	.read = op_read,
	.write_buf = op_write_buf,
	.flush = op_flush,
	.release = op_release,
	.fsync = op_fsync,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.fsyncdir = op_fsyncdir,
	.statfs = op_statfs,
	.getxattr = op_getxattr,
	.setxattr = op_setxattr,
	.listxattr = op_listxattr,
	.removexattr = op_removexattr,
	.fallocate = op_fallocate,
	.lseek = op_lseek,
	.copy_file_range = op_copy_file_range,
};

static void log_libfuse(enum fuse_log_level level, const char *format, va_list args)
	__attribute__((format(printf, 2, 0)));

/* libfuse prints its errors on stderr, which a daemon has not. */
static void log_libfuse(enum fuse_log_level level, const char *format, va_list args)
{
	char line[512];

	vsnprintf(line, sizeof(line), format, args);
	line[strcspn(line, "\n")] = 0;
	if (level <= FUSE_LOG_ERR)
		log_error("%s", line);
	else
		log_debug("%s", line);
}

/* The arguments of the mount; a comma in the remote's name must not end its option. */
static int mount_arguments(const struct fs_mount *m, struct fuse_args *ret_args)
{
	cleanup_buf struct buf text = {0};

	buf_printf(&text, "subtype=epochfs,default_permissions,%s,%s%s%s,fsname=",
		   m->options.suid ? "suid" : "nosuid", m->options.dev ? "dev" : "nodev",
		   m->options.noexec ? ",noexec" : "",
		   m->options.allow_other ? ",allow_other" : "");
	for (const char *p = volume_remote_name(m->vol); *p; p++) {
		if (*p == ',' || *p == '\\')
			buf_put_u8(&text, '\\');
		buf_put_u8(&text, (uint8_t)*p);
	}
	if (buf_error(&text) || fuse_opt_add_arg(ret_args, "epochfs") ||
	    fuse_opt_add_arg(ret_args, "-o") || fuse_opt_add_arg(ret_args, buf_str(&text)))
		return -ENOMEM;
	return 0;
}

static int session_new(struct fs_mount *m)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	int r = mount_arguments(m, &args);

	fuse_set_log_func(log_libfuse);
	if (r == 0)
		m->se = fuse_session_new(&args, &operations, sizeof(operations), m);
	fuse_opt_free_args(&args);
	return m->se ? 0 : r < 0 ? r : -EIO;
}

static int shake_hands(struct fs_mount *m, int fd, struct buf *message)
{
	int r;

	serve_find_device(m);
	volume_mounted(m->vol, m->device, m->mountpoint);
	r = fuse_session_custom_io(m->se, &passthrough_io, fd);
	if (r == 0)
		r = loop_one(m->loop);
	if (r < 0)
		buf_printf(message, "%s: the kernel does not answer the mount: %s", m->mountpoint,
			   strerror(-r));
	return r;
}

static int try_passthrough(struct fs_mount *m, struct buf *message)
{
	const char *why = "";
	int r = passthrough_probe(m, &why);

	if (r < 0)
		buf_printf(message,
			   "%s: cannot mount with passthrough=on: %s; use passthrough=auto",
			   m->mountpoint, why);
	return r;
}

/* Mounts, and answers the kernel's first request. */
static int connect_kernel(struct fs_mount *m, struct buf *message)
{
	int r;

	errno = 0;
	if (fuse_session_mount(m->se, m->mountpoint) < 0) {
		r = errno ? -errno : -EIO;
		buf_printf(message, "%s: cannot mount: %s", m->mountpoint, strerror(-r));
		return r;
	}
	r = shake_hands(m, fuse_session_fd(m->se), message);
	if (r < 0)
		return r;
	if (m->handover && !passthrough_can_resend(m)) {
		log_warn(
			"%s: no supervision: it needs a kernel that can send requests again (Linux "
			"6.9); if this process dies, mount again",
			m->mountpoint);
		shutdown(m->handover->socket, SHUT_RDWR);
		m->handover = NULL;
	}
	watchdog_start(m);
	return try_passthrough(m, message);
}

/* The mount is there, and the kernel knows nothing of a worker that died. */
static int take_over_kernel(struct fs_mount *m, struct buf *message)
{
	int r = shake_hands(m, m->handover->fuse_fd, message);

	if (r == 0 && !passthrough_same_terms(m)) {
		buf_printf(
			message,
			"%s: the epochfs that mounted this agreed with the kernel on other terms than "
			"this one knows (%s): unmount, and mount again",
			m->mountpoint, EPOCHFS_VERSION);
		r = -EPROTONOSUPPORT;
	}
	if (r < 0)
		return r;
	watchdog_start(m);
	r = try_passthrough(m, message);
	if (r == 0)
		r = files_revive(m);
	if (r == 0)
		passthrough_revived(m);
	return r;
}

static int set_up(struct fs_mount *m, const char *mountpoint)
{
	struct node_key root = {.kind = NODE_LIVE, .a = FUSE_ROOT_ID};
	uint64_t epoch = volume_options(m->vol)->at_epoch;
	int r;

	m->uid = geteuid();
	m->gid = getegid();
	m->mountpoint = realpath(mountpoint, NULL);
	if (!m->mountpoint)
		return -errno;
	if (epoch)
		root = (struct node_key){.kind = NODE_EPOCH, .a = epoch};
	r = nodes_new(&root, m->handover ? &m->handover->table : NULL, &m->nodes);
	if (r == 0)
		r = files_new(m->handover, &m->files);
	if (r == 0)
		r = users_new(&m->users);
	if (r == 0)
		r = epochs_names_new(&m->names);
	if (r == 0)
		r = epochs_views_new(&m->views);
	if (r == 0)
		r = loop_new(m, &m->loop);
	if (r == 0)
		r = passthrough_new(m, &m->passthrough);
	return r < 0 ? r : session_new(m);
}

int fs_mount(struct volume *vol, const char *mountpoint, const struct fs_options *options,
	     struct fs_mount **ret_mount, char **ret_message)
{
	struct fs_mount *m = calloc(1, sizeof(*m));
	cleanup_buf struct buf message = {0};
	int r;

	*ret_message = NULL;
	if (!m)
		return -ENOMEM;
	m->vol = vol;
	m->options = *options;
	m->handover = options->handover;
	m->restart_fd = eventfd(0, EFD_CLOEXEC);
	r = set_up(m, mountpoint);
	if (r < 0)
		buf_printf(&message, "%s: cannot mount: %s", mountpoint, strerror(-r));
	else if (m->handover && m->handover->fuse_fd >= 0)
		r = take_over_kernel(m, &message);
	else
		r = connect_kernel(m, &message);
	if (r < 0) {
		fs_unmount(m);
		if (buf_error(&message) == 0)
			*ret_message = strdup(buf_str(&message));
		return r;
	}
	invalidate_start(m);
	*ret_mount = m;
	return 0;
}

void fs_unmount(struct fs_mount *m)
{
	invalidate_stop(m);
	if (m->se) {
		fuse_session_unmount(m->se);
		fuse_session_destroy(m->se);
	}
	watchdog_stop(m);
	passthrough_free(m->passthrough);
	loop_free(m->loop);
	epochs_views_free(m->views);
	epochs_names_free(m->names);
	files_free(m->files);
	users_free(m->users);
	nodes_free(m->nodes);
	if (m->restart_fd >= 0)
		close(m->restart_fd);
	free(m->mountpoint);
	free(m);
}
