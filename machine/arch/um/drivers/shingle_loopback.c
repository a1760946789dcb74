// SPDX-License-Identifier: GPL-2.0-only
/*
 * Brings up the loopback interface, 127.0.0.1, before the guest's first
 * process: one that did it itself would need system calls, which take virtual
 * time, and so another time for all that follows.
 */

#define pr_fmt(fmt) "shingle: " fmt

#include <linux/if.h>
#include <linux/init.h>
#include <linux/netdevice.h>
#include <linux/printk.h>
#include <linux/rtnetlink.h>
#include <net/net_namespace.h>

static int __init loopback_up(void)
{
	struct net_device *lo = init_net.loopback_dev;
	int err;

	rtnl_lock();
	err = dev_change_flags(lo, lo->flags | IFF_UP, NULL);
	rtnl_unlock();
	if (err)
		pr_err("the loopback interface does not come up: error %d\n",
		       err);
	return err;
}
late_initcall(loopback_up);
