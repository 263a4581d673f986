// SPDX-License-Identifier: Apache-2.0
// Task<T>: the coroutine type of all asynchronous code (Asio's awaitable on an io_context). Parameters go by value.
// Only runtime/ and rpc/ include more of Asio than this.
#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

namespace nacre {
using Executor = boost::asio::io_context::executor_type;
template <class T = void>
using Task = boost::asio::awaitable<T, Executor>;
}  // namespace nacre
