// LevelDB by Node's classic-level as a writer and a reader: store write|read DIR default|sync
const { ClassicLevel } = require('classic-level')

const main = async (what, directory, setting) => {
  const db = new ClassicLevel(`${directory}/db`)
  await db.open()
  let number = 0
  for await (const item of db.values()) {
    number++
    if (what === 'read') console.log(item)
  }
  while (what === 'write') {
    number++
    const key = String(number).padStart(10, '0')
    await db.put(key, `item ${number}`, { sync: setting === 'sync' })
    console.log(`item ${number}`)
  }
}

main(...process.argv.slice(2)).catch(error => {
  console.error(String(error.cause ?? error))
  process.exit(1)
})
