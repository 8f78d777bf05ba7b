/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines of the daemon, one line each, to stderr, a file or syslog. */
#ifndef EPOCHFS_UTIL_LOG_H
#define EPOCHFS_UTIL_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Writes nothing below `level` (default: LOG_LEVEL_INFO). May be called at any time, from any
 * thread. */
void log_set_level(enum log_level level);
/* Sends lines to this descriptor (default 2); the caller keeps it open. -1: to syslog. */
void log_set_fd(int fd);
/* One line "TIME LEVEL message"; what a terminal would obey is masked (text.h), so that a
 * hostile name stays on its line. Thread-safe. */
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
